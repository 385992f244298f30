package shard

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"

	"github.com/redis/rueidis"
)

// dialTLS makes the client connect by TLS to servers that prove themselves under the name by which they are dialled, or under
// that of the URL.
//
// The nodes of a cluster, and the master that Sentinels name, are dialled where they say they are: often bare addresses, while
// the one certificate of all names a host; often hosts with a certificate each. rueidis by itself asks every one of them for
// the name in the URL alone.
func dialTLS(opt *rueidis.ClientOption) {
	named := opt.TLSConfig.ServerName
	opt.DialCtxFn = func(ctx context.Context, address string, dialer *net.Dialer, cfg *tls.Config) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		secure := tls.Dialer{NetDialer: dialer, Config: acceptNames(cfg, host, named)}
		conn, err := secure.DialContext(ctx, "tcp", address)
		if err != nil {
			// A server without TLS may wait for the rest of a command: then all there is to say is that time is up.
			return nil, fmt.Errorf("open a TLS connection to %s: %w", address, err)
		}
		return conn, nil
	}
}

// acceptNames returns cfg for a server that is trusted if its certificate is good for any of the names. The first one is asked
// for.
func acceptNames(cfg *tls.Config, names ...string) *tls.Config {
	out := cfg.Clone()
	out.ServerName = names[0]
	if cfg.InsecureSkipVerify { // by skip_verify of the URL
		return out
	}
	out.InsecureSkipVerify = true // VerifyConnection does all of it, for more than one name
	out.VerifyConnection = func(state tls.ConnectionState) error {
		leaf := state.PeerCertificates[0]
		chain := x509.VerifyOptions{Roots: cfg.RootCAs, Intermediates: x509.NewCertPool()}
		for _, more := range state.PeerCertificates[1:] {
			chain.Intermediates.AddCert(more)
		}
		_, err := leaf.Verify(chain)
		if err == nil {
			err = verifyNames(leaf, names)
		}
		if err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
		}
		return nil
	}
	return out
}

// verifyNames returns nil if a certificate is good for any of the names, else why it is not for the first.
func verifyNames(leaf *x509.Certificate, names []string) error {
	var first error
	for _, name := range names {
		err := leaf.VerifyHostname(name)
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}
