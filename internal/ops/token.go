package ops

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// RequireToken lets a request pass to next only with the header "Authorization: Bearer TOKEN", once. Without a configured token it lets
// nothing pass. The comparison takes the same time whatever is wrong with a token.
func RequireToken(token string, next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, ok := bearer(r)
		sum := sha256.Sum256([]byte(given))
		if same := subtle.ConstantTimeCompare(sum[:], want[:]) == 1; !ok || !same || token == "" {
			w.Header().Set("WWW-Authenticate", `Bearer realm="flashgate admin"`)
			message := "the admin token is missing or wrong"
			if token == "" {
				message = "no admin token is configured, so nobody may ask: set FLASHGATE_ADMIN_TOKEN"
			}
			WriteError(w, http.StatusUnauthorized, CodeUnauthorized, message)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// bearer returns the token of a request. Of two headers nobody can say which one a proxy has checked.
func bearer(r *http.Request) (token string, ok bool) {
	lines := r.Header.Values("Authorization")
	if len(lines) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(lines[0], " ")
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != ""
}
