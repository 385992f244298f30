package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"flashgate/internal/devstack/devtest"
)

// A provider of identities: one key, and how often it was asked for.
type provider struct {
	*httptest.Server
	key   *ecdsa.PrivateKey
	asked atomic.Int64
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	point, err := key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		t.Fatal(err)
	}
	text := base64.RawURLEncoding.EncodeToString
	set, err := json.Marshal(map[string]any{"keys": []any{map[string]any{
		"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "today", "x": text(point[1:33]), "y": text(point[33:]),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{key: key}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p.asked.Add(1)
		_, _ = w.Write(set)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *provider) token(t *testing.T, user, kid string) string {
	t.Helper()
	unsigned := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{"sub": user, "exp": time.Now().Add(time.Hour).Unix()})
	unsigned.Header["kid"] = kid
	signed, err := unsigned.SignedString(p.key)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func TestKeySetOfAProvider(t *testing.T) {
	p := newProvider(t)
	s := newShop(t, devtest.Redis(t).URL(), devtest.Kfake(t).Brokers()[0], "FLASHGATE_JWT_JWKS_URL="+p.URL, "FLASHGATE_RATE_IP=off", "FLASHGATE_RATE_USER=off").open(1, 1)
	item := s.offer(1000, 4)
	url := fmt.Sprintf("%s/api/flash-sales/items/%d/purchase", s.gateways[0].public, item)
	buy := func(user, kid string) answer {
		return s.try("POST", url, map[string]string{"Authorization": "Bearer " + p.token(t, user, kid)}, nil)
	}
	if a := buy("user 0", "today"); a.status != http.StatusAccepted {
		t.Fatalf("a good token: %v", a)
	}
	// A flood of made-up key ids is refused, keeps nobody from buying, and does not reach the provider.
	before := p.asked.Load()
	for n := 1; n <= 500; n++ {
		if a := buy("nobody", fmt.Sprintf("made up %d", n)); a.status != http.StatusUnauthorized {
			t.Fatalf("an unknown key id: %v", a)
		}
		if n%50 == 0 {
			if a := buy(fmt.Sprintf("user %d", n), "today"); a.status != http.StatusAccepted {
				t.Fatalf("a good token among bad ones: %v", a)
			}
		}
	}
	if more := p.asked.Load() - before; more > 2 {
		t.Errorf("the flood caused %d downloads", more)
	}
	// The secret of the configuration goes on working beside the set.
	if a := s.buy(0, item, "user of the secret", ""); a.status != http.StatusAccepted {
		t.Errorf("a token of the secret: %v", a)
	}
}
