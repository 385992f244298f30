package token

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// maxStaticKeys is how many keys of one algorithm a PEM text may hold. A token says nothing about which of them it
// was signed with, so a forged one is held against all: two are a rotation, and four leave room for one that overlaps.
const maxStaticKeys = 4

var (
	pemBegin = []byte("-----BEGIN")
	pemEnd   = []byte("-----END")
)

// parsePublicKeys reads every block of a PEM text and gives the keys by algorithm, in the order of the text.
func parsePublicKeys(data []byte) (map[string][]any, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if !isText(data) {
		return nil, errors.New("it is not text; of a key in DER, make PEM (openssl pkey -pubin -inform DER -in FILE -pubout)")
	}
	keys := map[string][]any{}
	var chain authorities
	for n := 1; ; n++ {
		block, rest := pem.Decode(data)
		// The decoder passes over what it cannot read and gives the next block that it can, so what was passed over
		// must be comments alone: a part of a file must not count as the whole one.
		taken := data[:len(data)-len(rest)]
		want := 1
		if block == nil {
			taken, want = data, 0
		}
		if bytes.Count(taken, pemBegin) != want || bytes.Count(taken, pemEnd) != want {
			return nil, fmt.Errorf("PEM block %d is damaged", n)
		}
		if block == nil {
			break
		}
		if err := addBlock(keys, block, chain.see); err != nil {
			return nil, fmt.Errorf("PEM block %d (%.40q): %w", n, block.Type, err)
		}
		data = rest
	}
	if len(keys) == 0 {
		return nil, errors.New("there is no PEM block in it")
	}
	if chain.mixed() {
		return nil, errors.New("there is a certificate of an authority in it; of a certificate chain, keep the signer's alone: " +
			"the others would be taken for signers of tokens")
	}
	return keys, nil
}

// isText tells whether data can be PEM with comments.
func isText(data []byte) bool {
	return !bytes.ContainsFunc(data, func(r rune) bool { return r < ' ' && r != '\t' && r != '\r' && r != '\n' || r == 0x7f })
}

// addBlock reads one block. The same key again changes nothing: it may come as a key and as a certificate.
func addBlock(keys map[string][]any, block *pem.Block, see func(*x509.Certificate)) error {
	key, err := parseBlock(block, see)
	if err != nil {
		return err
	}
	algorithm, err := algorithmOf(key)
	if err != nil {
		return err
	}
	if holds(keys[algorithm], key) {
		return nil
	}
	if len(keys[algorithm]) == maxStaticKeys {
		return fmt.Errorf("there are more than %d keys for %s", maxStaticKeys, algorithm)
	}
	keys[algorithm] = append(keys[algorithm], key)
	return nil
}

func parseBlock(block *pem.Block, see func(*x509.Certificate)) (any, error) {
	switch {
	case block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED"):
		return nil, errors.New("it is an encrypted private key; what verifies is the public key, which needs no " +
			"passphrase (openssl pkey -in FILE -pubout)")
	case strings.HasSuffix(block.Type, "PRIVATE KEY"):
		return nil, errors.New("it is a private key, which only the signer may have; " +
			"configure its public key (openssl pkey -in FILE -pubout)")
	case block.Type == "PUBLIC KEY":
		return x509.ParsePKIXPublicKey(block.Bytes)
	case block.Type == "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(block.Bytes)
	case block.Type == "CERTIFICATE":
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		see(cert)
		return cert.PublicKey, nil
	}
	return nil, errors.New("it must be a PUBLIC KEY, an RSA PUBLIC KEY or a CERTIFICATE")
}

// authorities finds chains. With several keys allowed in one file, a pasted chain would quietly make signers of
// tokens out of the authorities that issued the signer's certificate. A certificate that signs itself may call
// itself an authority (openssl req -x509 makes such) as long as it stands alone or among its like.
type authorities struct{ authority, issued bool }

func (a *authorities) see(cert *x509.Certificate) {
	a.authority = a.authority || cert.IsCA
	a.issued = a.issued || !bytes.Equal(cert.RawIssuer, cert.RawSubject)
}

// mixed tells whether there is an authority beside a certificate that another one issued.
func (a *authorities) mixed() bool { return a.authority && a.issued }
