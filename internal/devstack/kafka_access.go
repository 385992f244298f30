package devstack

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// KafkaAccess says who gets into a private broker. The zero value lets everybody in, in
// plain text.
type KafkaAccess struct {
	// Authority signs the broker's certificate, with which it speaks TLS alone. Nil: plain
	// text.
	Authority *Authority
	// User and Password are what clients must give, by SASL PLAIN, SCRAM-SHA-256 or
	// SCRAM-SHA-512, whichever they like. No User: nothing is asked.
	User, Password string
}

// validate refuses what would have to be written in another way into Kafka's files.
func (a KafkaAccess) validate() error {
	if (a.User == "") != (a.Password == "") {
		return errors.New("a user needs a password, and a password a user")
	}
	if strings.ContainsFunc(a.User+a.Password, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"\;`, r) }) {
		return errors.New(`user and password must be of visible ASCII without ", \ and ;`)
	}
	return nil
}

// protocol is Kafka's name for what the clients' listener speaks.
func (a KafkaAccess) protocol() string {
	switch {
	case a.Authority == nil && a.User == "":
		return "PLAINTEXT"
	case a.Authority == nil:
		return "SASL_PLAINTEXT"
	case a.User == "":
		return "SSL"
	}
	return "SASL_SSL"
}

// pemKeysFile holds a key and its certificate, as Kafka wants them.
const pemKeysFile = "tls-keys.pem"

// equip writes what the broker's configuration names into its directory.
func (a KafkaAccess) equip(dir *workDir) error {
	if a.Authority == nil {
		return nil
	}
	c, err := a.Authority.issue()
	if err != nil {
		return err
	}
	keys := append(append([]byte{}, c.key...), c.chain...)
	if err := errors.Join(writePrivate(dir, nil, pemKeysFile, keys), writePrivate(dir, nil, trustedFile, a.Authority.PEM())); err != nil {
		return fmt.Errorf("keep the certificate: %w", err)
	}
	return nil
}

// properties are the lines of the broker's configuration for it. The broker is its own
// client at times, by PLAIN.
func (a KafkaAccess) properties(dir *workDir) []string {
	var lines []string
	if a.Authority != nil {
		lines = append(lines,
			"ssl.keystore.type=PEM", "ssl.keystore.location="+dir.file(pemKeysFile),
			"ssl.truststore.type=PEM", "ssl.truststore.location="+dir.file(trustedFile))
	}
	if a.User != "" {
		const login = "org.apache.kafka.common.security."
		lines = append(lines,
			"sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
			"sasl.mechanism.inter.broker.protocol=PLAIN",
			fmt.Sprintf(`listener.name.client.plain.sasl.jaas.config=%splain.PlainLoginModule required username="%s" password="%s" user_%[2]s="%[3]s";`, login, a.User, a.Password),
			"listener.name.client.scram-sha-256.sasl.jaas.config="+login+"scram.ScramLoginModule required;",
			"listener.name.client.scram-sha-512.sasl.jaas.config="+login+"scram.ScramLoginModule required;")
	}
	return lines
}

// options are what our own clients need to get in, by PLAIN.
func (a KafkaAccess) options() []kgo.Opt {
	return a.optionsBy(plain.Auth{User: a.User, Pass: a.Password}.AsMechanism())
}

func (a KafkaAccess) optionsBy(mechanism sasl.Mechanism) []kgo.Opt {
	var opts []kgo.Opt
	if a.Authority != nil {
		opts = append(opts, kgo.DialTLSConfig(a.Authority.clientTLS()))
	}
	if a.User != "" {
		opts = append(opts, kgo.SASL(mechanism))
	}
	return opts
}

// admit tells the broker the user's secrets for SCRAM, which it keeps among its records,
// and returns when they are good.
func (a KafkaAccess) admit(ctx context.Context, addr string) error {
	if a.User == "" {
		return nil
	}
	client, err := kgo.NewClient(append(a.options(), kgo.SeedBrokers(addr))...)
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	for _, mechanism := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} { // a request may name a user once
		secret := kadm.UpsertSCRAM{User: a.User, Mechanism: mechanism, Iterations: 4096, Password: a.Password}
		altered, err := admin.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{secret})
		if err = errors.Join(err, altered.Error()); err != nil {
			return fmt.Errorf("tell the broker a secret of %s: %w", a.User, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		// The last of them will do: it was written after the others.
		err := a.proves(ctx, addr)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until the broker knows the secrets of %s: %w", a.User, err)
		}
	}
}

// proves tries whether the user gets in by SCRAM-SHA-512.
func (a KafkaAccess) proves(ctx context.Context, addr string) error {
	opts := a.optionsBy(scram.Auth{User: a.User, Pass: a.Password}.AsSha512Mechanism())
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(addr), kgo.RequestRetries(0))...)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Ping(ctx)
}
