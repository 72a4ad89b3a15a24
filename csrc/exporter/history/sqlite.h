#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace headscope::exporter {

/// A failed SQLite call; what() names the database's path and SQLite's message.
class SqliteError : public std::runtime_error {
 public:
  SqliteError(const std::string& what, int code) : std::runtime_error(what), code_(code) {}
  int code() const { return code_; }  ///< primary result code, SQLITE_FULL etc.
  /// The same write may succeed later: the disk was full, a reader held a lock, ...
  bool may_pass() const;
  /// Reading needs a connection that may write.
  bool needs_recovery() const;

 private:
  int code_;
};

class Statement;

/// One SQLite connection. Not thread-safe; used by one thread at a time.
class Database {
 public:
  enum class Mode { kReadWriteCreate, kReadOnly };

  /// Throws SqliteError when the file cannot be opened.
  Database(const std::string& path, Mode mode);

  /// Runs statements without results; throws SqliteError.
  void execute(const std::string& sql);
  Statement prepare(const std::string& sql);
  /// First column of the first row, empty when there is none.
  std::string text_of(const std::string& sql);
  int64_t integer_of(const std::string& sql);
  int64_t last_row_id() const;
  void set_busy_timeout_ms(int milliseconds);
  const std::string& path() const { return path_; }
  /// Throws SqliteError with the connection's last message.
  [[noreturn]] void fail(int code) const;

 private:
  struct Close {
    void operator()(sqlite3* handle) const;
  };
  std::string path_;
  std::unique_ptr<sqlite3, Close> handle_;
};

/// A prepared statement. Parameters and columns count from 1 and 0, as in SQLite.
class Statement {
 public:
  Statement& bind(int parameter, int64_t value);
  /// NaN is stored as NULL.
  Statement& bind(int parameter, double value);
  Statement& bind(int parameter, std::string_view text);
  Statement& bind_blob(int parameter, std::string_view bytes);

  /// True when there is a row; throws SqliteError.
  bool step();
  /// Runs to the end and makes the statement ready for the next values.
  void run();

  int64_t integer(int column) const;
  std::string text(int column) const;  ///< of a blob: its bytes

 private:
  friend class Database;
  Statement(const Database& database, sqlite3_stmt* statement);
  void check(int code) const;

  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  const Database* database_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

/// BEGIN IMMEDIATE ... commit(), or ROLLBACK when left without.
class Transaction {
 public:
  explicit Transaction(Database& database);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  Database& database_;
  bool open_ = true;
};

}  // namespace headscope::exporter
