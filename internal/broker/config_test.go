package broker_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"flashgate/internal/broker"
	"flashgate/internal/broker/brokertest"
	"flashgate/internal/devstack"
)

func TestConfigValidate(t *testing.T) {
	sound := broker.Config{Brokers: []string{"127.0.0.1:9092", "[::1]:9092"}}.WithDefaults()
	if err := sound.Validate(); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		change func(*broker.Config)
		says   string
	}{
		"no brokers":         {func(c *broker.Config) { c.Brokers = nil }, "brokers"},
		"no port":            {func(c *broker.Config) { c.Brokers = []string{"kafka"} }, "kafka"},
		"mechanism":          {func(c *broker.Config) { c.SASLMechanism = "gssapi" }, "gssapi"},
		"no user":            {func(c *broker.Config) { c.SASLMechanism, c.SASLPassword = broker.SASLPlain, "p" }, "user"},
		"no password":        {func(c *broker.Config) { c.SASLMechanism, c.SASLUser = broker.SASLScramSHA256, "u" }, "password"},
		"user, no mechanism": {func(c *broker.Config) { c.SASLUser = "u" }, "mechanism"},
		"partitions":         {func(c *broker.Config) { c.Partitions = -1 }, "partitions"},
		"replication":        {func(c *broker.Config) { c.Replication = -1 }, "replication"},
		"no such cluster":    {func(c *broker.Config) { c.Partitions = 1 << 31 }, "partitions"},
		"dial timeout":       {func(c *broker.Config) { c.DialTimeout = -1 }, "dial"},
		"request timeout":    {func(c *broker.Config) { c.RequestTimeout = -1 }, "request"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := sound
			c.change(&cfg)
			if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want something about %q", err, c.says)
			}
			if _, err := broker.NewAdmin(cfg); err == nil {
				t.Error("an Admin was made of it")
			}
			if _, err := broker.NewProducer(broker.ProducerConfig{Config: cfg}); err == nil {
				t.Error("a Producer was made of it")
			}
		})
	}
}

func TestConnectSecurely(t *testing.T) {
	server, clients := certificate(t)
	for _, mechanism := range []string{broker.SASLPlain, broker.SASLScramSHA256, broker.SASLScramSHA512} {
		t.Run(mechanism, func(t *testing.T) {
			s := brokertest.NewFake(t, devstack.KfakeConfig{Options: []kfake.Opt{
				kfake.TLS(server), kfake.EnableSASL(), kfake.Superuser(strings.ToUpper(mechanism), "flash", "s3cret"),
			}})
			s.Config.TLSConfig, s.Config.SASLMechanism, s.Config.SASLUser, s.Config.SASLPassword = clients, mechanism, "flash", "s3cret"
			s.CreateTopics(t)
			if err := publish(t, newProducer(t, s), events(7, 1, 1)); err != nil {
				t.Error(err)
			}

			var log bytes.Buffer
			wrong := s.Config
			wrong.SASLPassword = "wr0ng"
			wrong.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			admin, err := broker.NewAdmin(wrong)
			if err != nil {
				t.Fatal(err)
			}
			if err := admin.Ping(brokertest.Context(t)); err == nil {
				t.Error("let in with a wrong password")
			}
			admin.Close()
			if strings.Contains(log.String(), "wr0ng") {
				t.Error("the password is in the log")
			}
		})
	}
}

// certificate makes a self-signed certificate for 127.0.0.1 and what trusts it.
func certificate(t *testing.T) (server, clients *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12},
		&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}
