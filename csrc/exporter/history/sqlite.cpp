#include "csrc/exporter/history/sqlite.h"

#include <sqlite3.h>

#include <cmath>

namespace headscope::exporter {
bool SqliteError::may_pass() const {
  switch (code_) {
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_NOMEM:
      return true;
    default:
      return false;
  }
}

bool SqliteError::needs_recovery() const { return code_ == SQLITE_READONLY; }

void Database::Close::operator()(sqlite3* handle) const { sqlite3_close_v2(handle); }

Database::Database(const std::string& path, Mode mode) : path_(path) {
  const int flags = mode == Mode::kReadWriteCreate ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE
                                                   : SQLITE_OPEN_READONLY;
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &handle, flags, nullptr);
  handle_.reset(handle);
  if (code != SQLITE_OK) fail(code);
}

void Database::fail(int code) const {
  const bool connected = handle_ && sqlite3_errcode(handle_.get()) != SQLITE_OK;
  const char* message = connected ? sqlite3_errmsg(handle_.get()) : sqlite3_errstr(code);
  throw SqliteError(path_ + ": " + message, code & 0xFF);
}

void Database::execute(const std::string& sql) {
  const int code = sqlite3_exec(handle_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail(code);
}

Statement Database::prepare(const std::string& sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(handle_.get(), sql.c_str(), -1, &statement, nullptr);
  if (code != SQLITE_OK) fail(code);
  return Statement(*this, statement);
}

std::string Database::text_of(const std::string& sql) {
  Statement statement = prepare(sql);
  return statement.step() ? statement.text(0) : std::string();
}

int64_t Database::integer_of(const std::string& sql) {
  Statement statement = prepare(sql);
  return statement.step() ? statement.integer(0) : 0;
}

int64_t Database::last_row_id() const { return sqlite3_last_insert_rowid(handle_.get()); }

void Database::set_busy_timeout_ms(int milliseconds) {
  sqlite3_busy_timeout(handle_.get(), milliseconds);
}

void Statement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Statement::Statement(const Database& database, sqlite3_stmt* statement)
    : database_(&database), statement_(statement) {}

void Statement::check(int code) const {
  if (code != SQLITE_OK) database_->fail(code);
}

Statement& Statement::bind(int parameter, int64_t value) {
  check(sqlite3_bind_int64(statement_.get(), parameter, value));
  return *this;
}

Statement& Statement::bind(int parameter, double value) {
  check(std::isnan(value) ? sqlite3_bind_null(statement_.get(), parameter)
                          : sqlite3_bind_double(statement_.get(), parameter, value));
  return *this;
}

Statement& Statement::bind(int parameter, std::string_view text) {
  check(sqlite3_bind_text64(statement_.get(), parameter, text.empty() ? "" : text.data(),
                            text.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
  return *this;
}

Statement& Statement::bind_blob(int parameter, std::string_view bytes) {
  check(sqlite3_bind_blob64(statement_.get(), parameter, bytes.data(), bytes.size(),
                            SQLITE_TRANSIENT));
  return *this;
}

bool Statement::step() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) database_->fail(code);
  return false;
}

void Statement::run() {
  while (step()) {
  }
  sqlite3_reset(statement_.get());
}

int64_t Statement::integer(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}

std::string Statement::text(int column) const {
  const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement_.get(), column));
  const int size = sqlite3_column_bytes(statement_.get(), column);
  return bytes == nullptr ? std::string() : std::string(bytes, static_cast<size_t>(size));
}

Transaction::Transaction(Database& database) : database_(database) {
  database_.execute("BEGIN IMMEDIATE");
}

Transaction::~Transaction() {
  if (!open_) return;
  try {
    database_.execute("ROLLBACK");
  } catch (const SqliteError&) {
    // SQLite has rolled back by itself, as it does when the disk is full.
  }
}

void Transaction::commit() {
  database_.execute("COMMIT");
  open_ = false;
}

}  // namespace headscope::exporter
