package devstack

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// authorityLife is how long certificates are good: longer than any stack runs.
const authorityLife = 10 * 365 * 24 * time.Hour

// Authority signs the certificates of private servers. Its key never leaves the memory of
// this process, so nobody else can be taken for one of them. It is safe for concurrent use.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority that nobody trusts yet: clients are given its PEM.
func NewAuthority() (*Authority, error) {
	a := &Authority{}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "flashgate private servers"},
		IsCA:    true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err == nil {
		a.cert, err = sign(template, template, &a.key.PublicKey, a.key)
	}
	if err != nil {
		return nil, fmt.Errorf("make a certificate authority: %w", err)
	}
	return a, nil
}

// PEM is the certificate that clients must trust.
func (a *Authority) PEM() []byte { return encodePEM("CERTIFICATE", a.cert.Raw) }

// Pool trusts this authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// clientTLS is how this package itself connects to its servers; nil for no authority.
func (a *Authority) clientTLS() *tls.Config {
	if a == nil {
		return nil
	}
	return &tls.Config{RootCAs: a.Pool(), MinVersion: tls.VersionTLS12}
}

// certificate is what a server proves itself with, in PEM.
type certificate struct {
	chain []byte
	key   []byte // PKCS #8, which Java insists on
}

// loopbackNames are the names of a server that is given none.
var loopbackNames = []string{"127.0.0.1", "localhost"}

// issue signs a certificate for servers that are reached by these names or addresses, by
// default those of loopback. Servers that talk to each other use it as clients, too.
func (a *Authority) issue(hosts ...string) (certificate, error) {
	if len(hosts) == 0 {
		hosts = loopbackNames
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: hosts[0]},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return certificate{}, fmt.Errorf("make a certificate: %w", err)
	}
	cert, err := sign(template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return certificate{}, fmt.Errorf("make a certificate: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return certificate{}, fmt.Errorf("make a certificate: %w", err)
	}
	return certificate{chain: encodePEM("CERTIFICATE", cert.Raw), key: encodePEM("PRIVATE KEY", private)}, nil
}

// sign completes a template and signs it. An hour of the past is covered, for the sake of
// clocks that disagree.
func sign(template, parent *x509.Certificate, public *ecdsa.PublicKey, by *ecdsa.PrivateKey) (*x509.Certificate, error) {
	var serial [16]byte
	_, _ = rand.Read(serial[:]) // never fails
	serial[0] &= 0x7f
	template.SerialNumber = new(big.Int).SetBytes(serial[:])
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(authorityLife)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, by)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// Files that a server with TLS has in its directory.
const (
	certificateFile = "tls-cert.pem"
	keyFile         = "tls-key.pem"
	trustedFile     = "tls-ca.pem"
)

// equip puts a new certificate, its key and the authority's own certificate into the
// directory of a server that runs as user; nil for ourselves.
func (a *Authority) equip(dir *workDir, user *account, hosts ...string) error {
	c, err := a.issue(hosts...)
	if err != nil {
		return err
	}
	for _, file := range []struct {
		name string
		text []byte
	}{{certificateFile, c.chain}, {keyFile, c.key}, {trustedFile, a.PEM()}} {
		if err := writePrivate(dir, user, file.name, file.text); err != nil {
			return fmt.Errorf("keep the certificate: %w", err)
		}
	}
	return nil
}

// writePrivate writes a file of a server that runs as user, which only that user reads.
func writePrivate(dir *workDir, user *account, name string, text []byte) error {
	path := dir.file(name)
	return errors.Join(os.WriteFile(path, text, 0o600), user.own(path))
}
