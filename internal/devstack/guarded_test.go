package devstack_test

import (
	"crypto/tls"
	"net/url"
	"strings"
	"testing"

	"flashgate/internal/broker"
	"flashgate/internal/devstack"
	"flashgate/internal/devstack/devtest"
)

func TestPostgresBehindTLS(t *testing.T) {
	t.Parallel()
	authority, _ := devtest.Authority(t)
	_, stranger := devtest.Authority(t)
	p := devtest.GuardedPostgres(t, authority)
	dsn := p.DSN("postgres")
	if !strings.Contains(dsn, "sslmode=verify-full") {
		t.Errorf("the DSN does not ask for a certificate")
	}
	const encrypted = `SELECT ssl::text FROM pg_stat_ssl WHERE pid = pg_backend_pid()`
	if got := query(t, dsn, encrypted); got != "true" {
		t.Errorf("connections are encrypted: %s", got)
	}
	must(t, p.CreateDatabase(startContext(t), "shop", ""))

	changed := func(change func(u *url.URL, q url.Values)) error {
		u, err := url.Parse(dsn)
		must(t, err)
		q := u.Query()
		change(u, q)
		u.RawQuery = q.Encode()
		_, err = tryQuery(u.String(), encrypted)
		return err
	}
	wantError(t, "plain text", changed(func(_ *url.URL, q url.Values) { q.Set("sslmode", "disable"); q.Del("sslrootcert") }), "no pg_hba.conf entry")
	wantError(t, "trust in somebody else", changed(func(_ *url.URL, q url.Values) { q.Set("sslrootcert", stranger) }), "unknown authority")
	wantError(t, "a wrong password", changed(func(u *url.URL, _ url.Values) { u.User = url.UserPassword("postgres", "wrong") }), "password authentication failed")

	must(t, p.Restart(startContext(t)))
	if got := query(t, p.DSN("shop"), encrypted); got != "true" {
		t.Errorf("after a restart connections are encrypted: %s", got)
	}
}

func TestKafkaBehindPasswordAndTLS(t *testing.T) {
	t.Parallel()
	authority, _ := devtest.Authority(t)
	stranger, _ := devtest.Authority(t)
	k := devtest.GuardedKafka(t, devstack.KafkaAccess{Authority: authority, User: "shop", Password: "p@ss,w0rd"})
	open := devtest.Kafka(t)

	ping := func(change func(*broker.Config)) error {
		cfg := broker.Config{
			Brokers: k.Brokers(), TLSConfig: &tls.Config{RootCAs: authority.Pool(), MinVersion: tls.VersionTLS12},
			SASLMechanism: broker.SASLPlain, SASLUser: "shop", SASLPassword: "p@ss,w0rd",
		}
		change(&cfg)
		admin, err := broker.NewAdmin(cfg)
		must(t, err)
		defer admin.Close()
		return admin.Ping(startContext(t))
	}
	for _, mechanism := range []string{broker.SASLPlain, broker.SASLScramSHA256, broker.SASLScramSHA512} {
		if err := ping(func(c *broker.Config) { c.SASLMechanism = mechanism }); err != nil {
			t.Errorf("%s: %v", mechanism, err)
		}
		err := ping(func(c *broker.Config) { c.SASLMechanism, c.SASLPassword = mechanism, "wrong" })
		wantError(t, mechanism+" with a wrong password", err, "SASL_AUTHENTICATION_FAILED")
		if broker.FaultOf(err) != broker.FaultSASL {
			t.Errorf("%v: is not taken for a fault of SASL", err)
		}
	}
	for name, wrong := range map[string]struct {
		change func(*broker.Config)
		fault  broker.Fault
	}{
		"trust in somebody else":     {func(c *broker.Config) { c.TLSConfig.RootCAs = stranger.Pool() }, broker.FaultTLS},
		"no TLS":                     {func(c *broker.Config) { c.TLSConfig = nil }, broker.FaultTLS},
		"no user":                    {func(c *broker.Config) { c.SASLMechanism, c.SASLUser, c.SASLPassword = "", "", "" }, broker.FaultSASL},
		"TLS where there is none":    {func(c *broker.Config) { c.Brokers = open.Brokers() }, broker.FaultTLS},
		"a user where there is none": {func(c *broker.Config) { c.Brokers, c.TLSConfig = open.Brokers(), nil }, broker.FaultSASL},
		"nobody":                     {func(c *broker.Config) { c.Brokers = []string{"127.0.0.1:1"} }, broker.FaultBrokers},
	} {
		if err := ping(wrong.change); err == nil || broker.FaultOf(err) != wrong.fault {
			t.Errorf("%s: %v, of fault %d, want %d", name, err, broker.FaultOf(err), wrong.fault)
		}
	}
}

func TestKafkaRefusesWhatItCannotWriteDown(t *testing.T) {
	t.Parallel()
	for _, access := range []devstack.KafkaAccess{{User: "shop"}, {Password: "secret"}, {User: "shop", Password: `quo"te`}} {
		if k, err := devstack.StartKafka(startContext(t), devstack.KafkaConfig{Access: access}); err == nil {
			t.Errorf("started with %+v: %v", access, k.Stop())
		}
	}
}
