package config

import (
	"fmt"
	"time"

	"github.com/alecthomas/kong"
)

// kong calls the Validate methods of all groups of the chosen command when their values are there.

// Validate refuses the token that everybody knows.
func (a Admin) Validate(ctx *kong.Context) error {
	if a.AdminToken == DevAdminToken && !knownSecretsAllowed(ctx) {
		return &Error{Name: "FLASHGATE_ADMIN_TOKEN", Problem: "is the known token of flashgate dev; choose a secret one"}
	}
	return nil
}

// Validate requires a token.
func (a AdminClient) Validate() error {
	if !a.AdminToken.IsSet() {
		return &Error{Name: "FLASHGATE_ADMIN_TOKEN", Problem: "is required: the admin API answers nobody without it"}
	}
	return nil
}

// Validate requires the connection string.
func (d Database) Validate() error {
	if !d.URL.IsSet() {
		return &Error{Name: "FLASHGATE_DATABASE_URL", Problem: "is required, such as postgres://user:password@host:5432/database"} //nolint:gosec // G101: an example
	}
	return nil
}

// Validate checks that mechanism, user and password come together.
func (k Kafka) Validate() error {
	switch {
	case k.SASLMechanism == "" && (k.SASLUser != "" || k.SASLPassword.IsSet()):
		return &Error{Name: "FLASHGATE_KAFKA_SASL_MECHANISM", Problem: "is off, but a user or a password is set"}
	case k.SASLMechanism != "" && k.SASLUser == "":
		return &Error{Name: "FLASHGATE_KAFKA_SASL_USER", Problem: "is required with the mechanism " + k.SASLMechanism}
	case k.SASLMechanism != "" && !k.SASLPassword.IsSet():
		return &Error{Name: "FLASHGATE_KAFKA_SASL_PASSWORD", Problem: "is required with the mechanism " + k.SASLMechanism}
	}
	return nil
}

// Validate requires the name.
func (g KafkaGroup) Validate() error {
	if g.Group == "" {
		return &Error{Name: "FLASHGATE_KAFKA_GROUP", Problem: "must not be empty"}
	}
	return nil
}

// Validate requires a key, and refuses the one that everybody knows.
func (a Auth) Validate(ctx *kong.Context) error {
	switch {
	case !a.JWTSecret.IsSet() && a.JWTPublicKeyFile == "" && a.JWKSURL == "":
		return &Error{Name: "FLASHGATE_JWT_SECRET", Problem: "is required, or FLASHGATE_JWT_PUBLIC_KEY_FILE, or FLASHGATE_JWT_JWKS_URL: without a key no token can be verified"}
	case a.JWTSecret == DevJWTSecret && !knownSecretsAllowed(ctx):
		return &Error{Name: "FLASHGATE_JWT_SECRET", Problem: "is the known key of flashgate dev, with which anybody can sign; choose a secret one"}
	}
	return nil
}

// Validate refuses the key that everybody knows.
func (p Payments) Validate(ctx *kong.Context) error {
	if p.PaymentSecret == DevPaymentSecret && !knownSecretsAllowed(ctx) {
		return &Error{Name: "FLASHGATE_PAYMENT_SECRET", Problem: "is the known key of flashgate dev, with which anybody can pay; choose a secret one"}
	}
	return nil
}

// Validate requires the key.
func (s PaymentSigner) Validate() error {
	if !s.PaymentSecret.IsSet() {
		return &Error{Name: "FLASHGATE_PAYMENT_SECRET", Problem: "is required to sign; flashgate dev uses " + DevPaymentSecret}
	}
	return nil
}

// knownSecretsAllowed reports whether the chosen command is the one whose secrets everybody knows.
func knownSecretsAllowed(ctx *kong.Context) bool {
	return ctx.Selected().Vars()["known_secrets"] == "allowed"
}

// Validate requires the key.
func (s TokenSigner) Validate() error {
	if !s.JWTSecret.IsSet() {
		return &Error{Name: "FLASHGATE_JWT_SECRET", Problem: "is required to sign; flashgate dev uses " + DevJWTSecret}
	}
	return nil
}

// Validate checks the order of the times.
func (d Deadlines) Validate() error {
	return checkOrder("FLASHGATE_RECORD_DEADLINE", d.RecordDeadline, "FLASHGATE_GIVE_UP", d.GiveUp,
		"a record that may still arrive must not be given up")
}

// Validate checks the order of the times.
func (t Timeouts) Validate() error {
	if err := checkOrder("FLASHGATE_PUBLISH_TIMEOUT", t.PublishTimeout(), "FLASHGATE_REQUEST_TIMEOUT", t.Request,
		"it is a part of it"); err != nil {
		return err
	}
	if err := checkOrder("FLASHGATE_PUBLISH_TIMEOUT", t.PublishTimeout(), "FLASHGATE_RECORD_DEADLINE", t.RecordDeadline,
		"after its deadline a record is no longer waited for"); err != nil {
		return err
	}
	return t.Deadlines.Validate()
}

func checkOrder(name string, d time.Duration, longerName string, longer time.Duration, why string) error {
	if d < longer {
		return nil
	}
	return &Error{Name: name, Problem: fmt.Sprintf("%v must be less than %s (%v): %s", d, longerName, longer, why)}
}
