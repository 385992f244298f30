package ops

import (
	"net/http"
	"net/http/pprof" // registers itself on the default mux, too, which nothing serves
	"runtime/debug"
	profile "runtime/pprof"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"flashgate/internal/panics"
)

// profiles is the path of the index of profiles.
const profiles = "/debug/pprof/"

// handler serves the admin listener. The path is taken from the request once, here, and everything behind compares it letter by letter.
func (cfg Config) handler() http.Handler {
	metrics := promhttp.HandlerFor(cfg.Gatherer, promhttp.HandlerOpts{ErrorLog: promLog{cfg.Logger}, Timeout: scrapeTimeout})
	guarded := RequireToken(cfg.Token, http.HandlerFunc(serveProfile))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer cfg.endQuietly()
		path, ok := Path(r)
		switch {
		case !ok:
			notFound(w)
		case path == "/livez":
			readOnly(w, r, func() { WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"}) })
		case path == "/readyz":
			readOnly(w, r, func() { serveReadiness(w, r, cfg.Readiness) })
		case path == "/metrics":
			readOnly(w, r, func() { metrics.ServeHTTP(w, r) })
		case strings.HasPrefix(path, profiles):
			guarded.ServeHTTP(w, r)
		case cfg.Admin != nil && (path == "/admin" || strings.HasPrefix(path, "/admin/")):
			cfg.Admin.ServeHTTP(w, r)
		default:
			notFound(w)
		}
	})
}

// endQuietly is deferred by the handler. net/http would log a panic with its value and the address of the client; it ends the connection either way.
func (cfg Config) endQuietly() {
	p := recover()
	if p == nil {
		return
	}
	if p != http.ErrAbortHandler { //nolint:errorlint // it is not wrapped
		cfg.Logger.Error("handle request: panic", "panic", panics.Text(p), "stack", string(debug.Stack()))
	}
	panic(http.ErrAbortHandler)
}

func notFound(w http.ResponseWriter) {
	WriteError(w, http.StatusNotFound, CodeNotFound, "there is nothing at this path")
}

// readOnly lets only methods pass that change nothing.
func readOnly(w http.ResponseWriter, r *http.Request, serve func()) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		WriteError(w, http.StatusMethodNotAllowed, CodeMethodNotAllowed, "only GET and HEAD are allowed here")
		return
	}
	serve()
}

func serveReadiness(w http.ResponseWriter, r *http.Request, readiness *Readiness) {
	missing := readiness.Missing(r.Context())
	if len(missing) == 0 {
		WriteJSON(w, http.StatusOK, map[string]string{"status": "ready"})
		return
	}
	w.Header().Set("Retry-After", "1")
	WriteJSON(w, http.StatusServiceUnavailable, struct {
		Status  string    `json:"status"`
		Missing []Missing `json:"missing"`
	}{"not ready", missing})
}

// serveProfile serves the profiles that net/http/pprof has, under their names there.
func serveProfile(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, profiles)
	// The symbol look-up takes its addresses in a body; everything else only reads.
	if name == "symbol" && r.Method == http.MethodPost {
		pprof.Symbol(w, r)
		return
	}
	readOnly(w, r, func() {
		switch {
		case name == "":
			pprof.Index(w, r)
		case name == "cmdline":
			// The command line may hold secrets that were given as flags; whoever may profile need not know them.
			notFound(w)
		case name == "profile":
			pprof.Profile(w, r)
		case name == "symbol":
			pprof.Symbol(w, r)
		case name == "trace":
			pprof.Trace(w, r)
		case profile.Lookup(name) != nil:
			pprof.Handler(name).ServeHTTP(w, r)
		default:
			notFound(w)
		}
	})
}
