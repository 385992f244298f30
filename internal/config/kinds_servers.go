package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"

	"flashgate/internal/broker"
)

// off is the value that stands for "no such server".
const off = "off"

// parseAddress reads an address to listen on. Port 0 asks the system for a free one.
func parseAddress(text string, _ *kong.Tag) (any, error) {
	if _, err := splitAddress(text, 0); err != nil {
		return nil, fmt.Errorf("must be an address to listen on, such as :8080 or 127.0.0.1:9090: %w", err)
	}
	return text, nil
}

func splitAddress(text string, leastPort uint64) (host string, err error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		// net's error repeats the address, which the message has already.
		var addrErr *net.AddrError
		if errors.As(err, &addrErr) {
			return "", errors.New(addrErr.Err)
		}
		return "", err
	}
	if strings.ContainsAny(host, " \t/@") {
		return "", errors.New("the host holds a character that no host name has")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n < leastPort {
		return "", fmt.Errorf("the port must be a number from %d to 65535", leastPort)
	}
	return host, nil
}

// parseBrokers reads a comma list of brokers; "off" is an empty list.
func parseBrokers(text string, _ *kong.Tag) (any, error) {
	if text == off {
		return []string(nil), nil
	}
	brokers := strings.Split(text, ",")
	for i, address := range brokers {
		brokers[i] = strings.TrimSpace(address)
		host, err := splitAddress(brokers[i], 1)
		if err == nil && host == "" {
			err = errors.New("the host is missing")
		}
		if err != nil {
			return nil, fmt.Errorf("must be a comma list of host:port, or off: entry %d: %w", i+1, err)
		}
	}
	return brokers, nil
}

// parseMemberID reads the name of a static member of a consumer group.
func parseMemberID(text string, _ *kong.Tag) (any, error) {
	if err := broker.CheckInstanceID(text); err != nil {
		return nil, err
	}
	return text, nil
}

// redisParameters are the parameters that rueidis.ParseURL reads. It ignores others, so that a misspelt master_set would take the sentinel for
// the server.
var redisParameters = []string{
	"addr", "client_cache", "client_name", "db", "dial_timeout", "master_set", "max_retries", "protocol", "skip_verify", "write_timeout",
}

var errRedisURL = errors.New("must be a URL such as redis://user:password@host:6379, rediss:// for TLS, or off")

// parseRedis checks a Redis URL; "off" is an empty one. Its errors never hold any part of the URL that may be the password: that stands
// between the scheme and the last @, and a password with / or # in it moves into other parts.
func parseRedis(text string, _ *kong.Tag) (any, error) {
	if text == off {
		return "", nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Fragment != "" {
		return nil, fmt.Errorf("%w; special characters in the password must be percent-encoded", errRedisURL)
	}
	parameters, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("%w; its parameters cannot be read", errRedisURL)
	}
	for name := range parameters {
		if !slices.Contains(redisParameters, name) {
			return nil, fmt.Errorf("has a parameter that is none of %s", strings.Join(redisParameters, ", "))
		}
	}
	if _, err := rueidis.ParseURL(text); err != nil {
		return nil, errRedisURL
	}
	return text, nil
}

// parsePostgres checks a connection string as pgx reads it. The driver's error repeats parts of the string; it is not passed on.
func parsePostgres(text string, _ *kong.Tag) (any, error) {
	if text == "" {
		return "", nil
	}
	if _, err := pgxpool.ParseConfig(text); err != nil {
		var file *fs.PathError // sslrootcert, sslcert or sslkey
		if errors.As(err, &file) {
			return nil, fmt.Errorf("names the file %s, which cannot be read: %w", file.Path, file.Err)
		}
		return nil, errors.New("must be a PostgreSQL connection string, such as postgres://user:password@host:5432/database?pool_max_conns=16 " +
			"or host=… dbname=…, with valid parameters; special characters in the password of a URL must be percent-encoded")
	}
	return text, nil
}

// mechanisms are the SASL mechanisms that may be configured.
var mechanisms = []string{"plain", "scram-sha-256", "scram-sha-512"}

// parseMechanism reads the name of a SASL mechanism; "off" is an empty one.
func parseMechanism(text string, _ *kong.Tag) (any, error) {
	switch {
	case text == off:
		return "", nil
	case slices.Contains(mechanisms, text):
		return text, nil
	}
	return nil, fmt.Errorf("must be one of %s, or off", strings.Join(mechanisms, ", "))
}
