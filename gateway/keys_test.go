package gateway

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"flashgate/internal/token"
)

// Before the key set of a provider was fetched nobody knows whether its tokens are good: their bearers are told to come again, as an app throws a
// token away that gets 401. What the configuration can tell, it tells.
func TestTokensBeforeTheKeySetIsThere(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"%s"}]}`, base64.RawURLEncoding.EncodeToString(public))
	}))
	t.Cleanup(provider.Close)
	static, err := token.NewKeys(token.KeyConfig{Secret: secret})
	must(t, err)
	set, err := token.NewKeySet(token.KeySetConfig{URL: provider.URL, Beside: static})
	must(t, err)
	w := newWorld(t)
	w.tokens, err = token.NewVerifier(token.Config{Keys: set})
	must(t, err)
	g := w.start(t)
	provided := func(kid string) string {
		unsigned := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{"sub": "77", "exp": time.Now().Add(time.Hour).Unix()})
		unsigned.Header["kid"] = kid
		raw, err := unsigned.SignedString(private)
		must(t, err)
		return raw
	}
	for _, a := range []ask{purchaseOf(provided("a")), {method: "GET", path: ordersPath + "?itemId=1001", token: provided("a")}} {
		r := do(t, g, a).want(t, 503, "UNAVAILABLE")
		checkHeaders(t, r)
		if r.header("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	do(t, g, purchaseOf(w.token(t, "78"))).want(t, 202, "")
	do(t, g, purchaseOf(w.forged(t, "79"))).want(t, 401, "UNAUTHORIZED")
	must(t, set.Refresh(t.Context()))
	do(t, g, purchaseOf(provided("a"))).want(t, 202, "")
	do(t, g, purchaseOf(provided("b"))).want(t, 401, "UNAUTHORIZED")
}
