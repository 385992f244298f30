package broker

import (
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Fault is the part of a Config that an error speaks against.
type Fault int

// The faults.
const (
	// FaultNone: the Config may well be right.
	FaultNone Fault = iota
	// FaultBrokers: no broker can be reached at these addresses.
	FaultBrokers
	// FaultTLS: the certificate is not trusted, or one side speaks TLS and the other does not.
	FaultTLS
	// FaultSASL: user, password or mechanism are refused, or are asked for and not given.
	FaultSASL
)

// refusals are what brokers say when it is about SASL.
var refusals = []error{kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState}

// FaultOf says which part of the Config an error of this package speaks against, so that whoever reads the error looks in the right place.
func FaultOf(err error) Fault {
	var untrusted *tls.CertificateVerificationError
	var closed *kgo.ErrFirstReadEOF
	var dial *net.OpError
	switch {
	case err == nil:
		return FaultNone
	case slices.ContainsFunc(refusals, func(refusal error) bool { return errors.Is(err, refusal) }):
		return FaultSASL
	case errors.As(err, &untrusted), errors.As(err, new(tls.RecordHeaderError)):
		return FaultTLS
	// The client guesses from what it had just done why the broker hung up, and has only words for it.
	case errors.As(err, &closed) && strings.Contains(closed.Error(), "SASL"):
		return FaultSASL
	case errors.As(err, &closed), strings.Contains(err.Error(), "to a tls endpoint"):
		return FaultTLS
	case errors.As(err, &dial) && dial.Op == "dial":
		return FaultBrokers
	}
	return FaultNone
}
