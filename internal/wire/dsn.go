package wire

import (
	"context"
	"errors"
	"net"
	"net/url"
)

// Through starts a proxy in front of the PostgreSQL server that dsn, a
// postgres:// URL, names, and returns with it the same DSN through the proxy.
func Through(ctx context.Context, dsn string) (*Proxy, string, error) {
	address, err := url.Parse(dsn)
	if err != nil || address.Scheme != "postgres" && address.Scheme != "postgresql" {
		return nil, "", errors.New("wire: read the DSN: it must be a postgres:// URL") // its text may hold a password
	}
	query := address.Query()
	host, port := address.Hostname(), address.Port()
	if host == "" {
		host = query.Get("host")
	}
	if port == "" {
		port = query.Get("port")
	}
	if port == "" {
		port = "5432"
	}
	upstream := net.JoinHostPort(host, port)
	if len(host) > 0 && host[0] == '/' {
		upstream = host + "/.s.PGSQL." + port
	}
	proxy, err := Listen(ctx, upstream, Postgres)
	if err != nil {
		return nil, "", err
	}
	query.Del("host")
	query.Del("port")
	query.Set("sslmode", "disable")
	address.Host, address.RawQuery = proxy.Addr(), query.Encode()
	return proxy, address.String(), nil
}
