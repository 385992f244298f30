package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"flashgate/internal/config"
	"flashgate/internal/token"
)

// greet tells a newcomer what to do next.
func (c *devCommand) greet(ctx context.Context, w io.Writer, set *devSet, public, operators string) error {
	signer, err := token.NewSigner(token.SignerConfig{Secret: []byte(c.JWTSecret.Reveal()), Issuer: c.JWTIssuer, Audience: c.JWTAudience})
	if err != nil {
		return err
	}
	it, _, err := set.ledger.Item(ctx, demoItem)
	if err != nil {
		return err
	}
	const user = "42"
	bearer, err := signer.Sign(user, 24*time.Hour, time.Now())
	if err != nil {
		return err
	}
	edge, desk := "http://"+reachable(public), "http://"+reachable(operators)
	program := os.Args[0]
	key := shownSecret("FLASHGATE_JWT_SECRET", c.JWTSecret, config.DevJWTSecret)
	adminToken := shownSecret("FLASHGATE_ADMIN_TOKEN", c.AdminToken, config.DevAdminToken)
	database, redis := quoted(set.database), quoted(set.redis)
	if c.DatabaseURL.IsSet() {
		database = `"$FLASHGATE_DATABASE_URL"`
	}
	if c.RedisURL.IsSet() {
		redis = `"$FLASHGATE_REDIS_URL"`
	}
	claims := ""
	if c.JWTIssuer != "" {
		claims += " --jwt-issuer " + quoted(c.JWTIssuer)
	}
	if c.JWTAudience != "" {
		claims += " --jwt-audience " + quoted(c.JWTAudience)
	}
	if c.JWTSecret != config.DevJWTSecret {
		bearer = "$(FLASHGATE_JWT_SECRET=" + key + " " + program + " token --user " + user + claims + ")" // a token is worth what its key is
	}
	var b strings.Builder
	fmt.Fprintf(&b, `
flashgate is open: sale %d, item %d, %d of %d units left.

  Buy a unit, as user %s:
    curl -i -X POST '%s/api/flash-sales/items/%d/purchase' -H 'Idempotency-Key: my-first-order' \
      -H "Authorization: Bearer %s"

  Look at the order:
    curl -s '%s/api/flash-sales/orders?itemId=%d' \
      -H "Authorization: Bearer %s"

  A token for somebody else:
    FLASHGATE_JWT_SECRET=%s %s token --user 43%s

  Look at the stock, and put a crowd in front of it:
    FLASHGATE_ADMIN_URL='%s' FLASHGATE_ADMIN_TOKEN=%s %s item show %d
    %s bench rush --url '%s' --admin-url '%s' --admin-token %s --jwt-secret %s%s \
      --database-url %s --redis-url %s

  Shoppers      %s
  Operators     %s   (/readyz, /metrics, /admin; token %s)
  PostgreSQL    %s
  Redis         %s
  Kafka         %s
  Kept in       %s

Ctrl-C ends it.
`, demoSale, demoItem, it.Quantity-it.Sold, it.Quantity, user, edge, demoItem, bearer, edge, demoItem, bearer, key, program, claims, desk, adminToken, program, demoItem,
		program, edge, desk, adminToken, key, claims, database, redis,
		edge, desk, unquoted(adminToken), unquoted(database), unquoted(redis), strings.Join(set.brokers, ","), c.keptIn(set.kept))
	_, err = io.WriteString(w, b.String())
	return err
}

// shownSecret is a secret as a word of the shell: itself if everybody knows it, else the variable that it may have come from. What is printed here stands in
// terminals and logs of builds.
func shownSecret(variable string, secret config.Secret, known string) string {
	if secret.Reveal() == known {
		return quoted(known)
	}
	return `"$` + variable + `"`
}

// quoted is text as one word of the shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// unquoted is a word of the shell for people.
func unquoted(word string) string { return strings.Trim(word, `'"`) }

func (c *devCommand) keptIn(dir string) string {
	if dir == "" && c.DatabaseURL.IsSet() {
		return "the database named above"
	}
	if dir == "" {
		return "nothing: all of it is gone at the end (--data DIR keeps it)"
	}
	return dir
}

// reachable turns the address of a listener into one that a client on this machine can use.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}
