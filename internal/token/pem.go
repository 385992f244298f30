package token

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// minRSABits is the least that RFC 7518 (3.3) allows.
const minRSABits = 2048

// parsePublicKeys reads every block of a PEM text and gives the keys by algorithm.
func parsePublicKeys(data []byte) (map[string]any, error) {
	keys := map[string]any{}
	for n := 1; ; n++ {
		block, rest := pem.Decode(data)
		if block == nil {
			// What is left may be comments, but not a block that did not decode:
			// half a file must not count as a whole one.
			if bytes.Contains(data, []byte("-----BEGIN")) {
				return nil, fmt.Errorf("PEM block %d is damaged", n)
			}
			break
		}
		key, err := parseBlock(block)
		if err != nil {
			return nil, fmt.Errorf("PEM block %d (%.40q): %w", n, block.Type, err)
		}
		algorithm, err := algorithmOf(key)
		if err != nil {
			return nil, fmt.Errorf("PEM block %d (%.40q): %w", n, block.Type, err)
		}
		if keys[algorithm] != nil {
			return nil, fmt.Errorf("PEM block %d is a second key for %s; of a certificate chain, keep the signer's alone", n, algorithm)
		}
		keys[algorithm] = key
		data = rest
	}
	if len(keys) == 0 {
		return nil, errors.New("there is no PEM block in it")
	}
	return keys, nil
}

func parseBlock(block *pem.Block) (any, error) {
	switch {
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
		return cert.PublicKey, nil
	}
	return nil, errors.New("it must be a PUBLIC KEY, an RSA PUBLIC KEY or a CERTIFICATE")
}

// algorithmOf pins a public key to the one algorithm that it may be used with.
func algorithmOf(key any) (string, error) {
	switch key := key.(type) {
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < minRSABits {
			return "", fmt.Errorf("the RSA key has %d bits, and must have at least %d", bits, minRSABits)
		}
		return RS256, nil
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() {
			return "", fmt.Errorf("the EC key is on %s, and must be on P-256", key.Curve.Params().Name)
		}
		return ES256, nil
	case ed25519.PublicKey:
		return EdDSA, nil
	}
	return "", errors.New("the key must be RSA, EC on P-256 or Ed25519")
}
