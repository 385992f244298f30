package main

import (
	"bytes"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"flashgate/internal/config"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
	"flashgate/internal/token"
)

// greeting is what dev prints on a database with the demo sale.
func greeting(t *testing.T, change func(c *devCommand, set *devSet)) string {
	t.Helper()
	set := &devSet{database: devtest.DatabaseLike(t, "greet", ledger.Migrate), redis: "redis://127.0.0.1:7", brokers: []string{"127.0.0.1:9"}}
	var err error
	if set.ledger, err = ledger.Open(t.Context(), ledger.Config{URL: set.database}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.ledger.Close)
	now := time.Now()
	if _, err := set.ledger.CreateSale(t.Context(), sale.Sale{
		ID: demoSale, Name: "Demo", StartsAt: now, EndsAt: now.Add(time.Hour), PurchaseLimit: sale.PerItem, PaymentWindow: time.Hour, TimeZone: "UTC",
		Items: []sale.Item{{ID: demoItem, Quantity: 3, Price: "1", Currency: "EUR", Shards: 1, MaxPerUser: 1, Model: sale.Counter}},
	}); err != nil {
		t.Fatal(err)
	}
	c, err := defaultDev()
	if err != nil {
		t.Fatal(err)
	}
	change(c, set)
	var out bytes.Buffer
	if err := c.greet(t.Context(), &out, set, "0.0.0.0:8080", "127.0.0.1:9090"); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestDevPrintsNoSecretOfTheEnvironment(t *testing.T) {
	database := devtest.DatabaseLike(t, "greet", ledger.Migrate)
	text := greeting(t, func(c *devCommand, set *devSet) {
		c.JWTSecret, c.AdminToken = testKey, "token-hunter8"
		c.DatabaseURL, c.RedisURL = config.Secret(database), "redis://u:hunter8@127.0.0.1:6379"
		set.database, set.redis = "postgres://u:hunter8@db/flashgate", c.RedisURL.Reveal()
	})
	if strings.Contains(text, "hunter8") || strings.Contains(text, testKey) || strings.Contains(text, "eyJ") || strings.Contains(text, config.DevJWTSecret) {
		t.Errorf("dev prints\n%s", text)
	}
	for _, want := range []string{
		`--admin-token "$FLASHGATE_ADMIN_TOKEN" --jwt-secret "$FLASHGATE_JWT_SECRET"`, `--database-url "$FLASHGATE_DATABASE_URL" --redis-url "$FLASHGATE_REDIS_URL"`,
		`token $FLASHGATE_ADMIN_TOKEN)`, "PostgreSQL    $FLASHGATE_DATABASE_URL\n", "Redis         $FLASHGATE_REDIS_URL\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("dev does not print %s:\n%s", want, text)
		}
	}
}

// The printed commands work with an issuer and an audience, whatever stands in them.
func TestDevPrintsTokensThatItsGatewayTakes(t *testing.T) {
	const issuer, audience = "https://id.example/it's $HOME", "shop"
	text := greeting(t, func(c *devCommand, _ *devSet) { c.JWTIssuer, c.JWTAudience = issuer, audience })
	claims := ` --jwt-issuer 'https://id.example/it'\''s $HOME' --jwt-audience 'shop'`
	for _, want := range []string{"token --user 43" + claims + "\n", "--jwt-secret '" + config.DevJWTSecret + "'" + claims + " \\\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("dev does not print %s:\n%s", want, text)
		}
	}
	_, behind, _ := strings.Cut(text, "A token for somebody else:\n")
	line, _, _ := strings.Cut(strings.TrimSpace(behind), "\n")
	setting, command, _ := strings.Cut(line, " ")
	_, arguments, _ := strings.Cut(command, " ")
	words, err := exec.CommandContext(t.Context(), "sh", "-c", `for word in `+setting+" "+arguments+`; do echo "$word"; done`).Output()
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Split(strings.TrimSpace(string(words)), "\n")
	got := flashgate(t, all[:1], "", all[1:]...)
	keys, err := token.NewKeys(token.KeyConfig{Secret: []byte(config.DevJWTSecret)})
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := token.NewVerifier(token.Config{Keys: keys, Issuer: issuer, Audience: audience, Leeway: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := verifier.Verify([]byte(strings.TrimSpace(got.out))); err != nil || c.Subject != "43" {
		t.Errorf("%q: %+v, %v, %s", line, c, err, got.err)
	}
}

// The setting is named to whoever has mistyped a password, by the commands that ask the servers themselves.
func TestAWrongPasswordNamesItsSetting(t *testing.T) {
	database := parseURL(t, devtest.Database(t))
	database.User = url.UserPassword("nobody-here", "hunter8")
	redis := devtest.Redis(t, "--requirepass", "right")
	wrong := parseURL(t, redis.URL())
	wrong.User = url.UserPassword("default", "hunter8")
	settings := []string{
		"FLASHGATE_DATABASE_URL=" + database.String(), "FLASHGATE_REDIS_URL=" + wrong.String(), "FLASHGATE_JWT_SECRET=" + testKey,
		"FLASHGATE_KAFKA_BROKERS=127.0.0.1:1",
	}
	got := flashgate(t, settings, "", "preflight", "--timeout", "10s")
	for _, want := range []string{"FLASHGATE_DATABASE_URL: cannot be used: ", "FLASHGATE_REDIS_URL: cannot be used: ", "FLASHGATE_KAFKA_BROKERS: "} {
		if got.code != exitFailed || !strings.Contains(got.out, want) {
			t.Errorf("preflight does not say %q: exit %d\n%s", want, got.code, got.out)
		}
	}
	if purge := flashgate(t, settings[:1], "", "purge", "--older-than", "8760h"); purge.code != exitFailed || !strings.HasPrefix(purge.err, "flashgate: FLASHGATE_DATABASE_URL: ") {
		t.Errorf("purge: exit %d, %s", purge.code, purge.err)
	} else if strings.Contains(purge.err+got.out+got.err, "hunter8") {
		t.Errorf("a password is shown: %s%s%s", purge.err, got.out, got.err)
	}
}
