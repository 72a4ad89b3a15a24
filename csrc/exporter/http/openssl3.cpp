// A library of its own, named libssl.so to whoever opens that: libssl.so.3, and the function that
// OpenSSL 3 renamed and civetweb 1.15 looks for by its old name, as in Debian 12 (http_server.cpp).

struct ssl_st;
struct x509_st;

extern "C" {
x509_st* SSL_get1_peer_certificate(const ssl_st* connection);

__attribute__((visibility("default"))) x509_st* SSL_get_peer_certificate(const ssl_st* connection) {
  return SSL_get1_peer_certificate(connection);
}
}
