package admin

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"flashgate/internal/ops"
)

// Config says what the API works with. The ports, from Ledger to DeadLetters, are required.
type Config struct {
	// Token is what callers must show. Empty: nobody may call.
	Token string

	Ledger    Ledger
	Stock     Stock
	Loader    Loader
	Catalogue Catalogue

	Changes      Changes
	Orders       Orders
	Reservations Reservations
	Audit        Audit
	Reloader     Reloader
	Reconciler   Reconciler
	DeadLetters  DeadLetters

	// LetterReasons are the reasons for which letters are made. A replay for another one, which no letter has either, is refused. Default none: nothing is.
	LetterReasons []string

	// Timeout bounds what a request asks of the database and of Redis, except for the times below. Default 5 s.
	Timeout time.Duration
	// LoadTimeout is how long the creation of a sale waits for its stock to be loaded; then it answers 202 and the keeper goes on. Default 10 s.
	LoadTimeout time.Duration
	// RestockWait is how long a restock waits for its units to be in Redis; then it answers without the number of free units. Default 1 s.
	RestockWait time.Duration
	// ReloadWait is how long a reload waits for its load; then it answers 202 and the load goes on, for up to ReloadTimeout. Default 5 s and 5 min.
	ReloadWait, ReloadTimeout time.Duration
	// StockTimeout bounds one reading of Redis, so that an item can be shown while Redis is away. Default 1 s.
	StockTimeout time.Duration

	// Now decides what can still be paid. Default time.Now.
	Now func() time.Time
	// Logger is told of every change and of what went wrong. Default: nobody is.
	Logger *slog.Logger
	// Registerer gets the metrics. Default: they are not shown.
	Registerer prometheus.Registerer
}

// WithDefaults returns cfg with the defaults filled in.
func (cfg Config) WithDefaults() Config {
	for _, d := range []struct {
		setting *time.Duration
		value   time.Duration
	}{
		{&cfg.Timeout, 5 * time.Second},
		{&cfg.LoadTimeout, 10 * time.Second},
		{&cfg.RestockWait, time.Second},
		{&cfg.ReloadWait, 5 * time.Second},
		{&cfg.ReloadTimeout, 5 * time.Minute},
		{&cfg.StockTimeout, time.Second},
	} {
		if *d.setting == 0 {
			*d.setting = d.value
		}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Registerer == nil {
		cfg.Registerer = prometheus.NewRegistry()
	}
	return cfg
}

// Validate reports what is missing or makes no sense.
func (cfg Config) Validate() error {
	for _, port := range []struct {
		name    string
		missing bool
	}{
		{"ledger", cfg.Ledger == nil}, {"stock", cfg.Stock == nil}, {"loader", cfg.Loader == nil}, {"catalogue", cfg.Catalogue == nil},
		{"changes", cfg.Changes == nil}, {"orders", cfg.Orders == nil}, {"reservations", cfg.Reservations == nil}, {"audit", cfg.Audit == nil},
		{"reloader", cfg.Reloader == nil}, {"reconciler", cfg.Reconciler == nil}, {"dead letters", cfg.DeadLetters == nil},
	} {
		if port.missing {
			return fmt.Errorf("%s: is missing", port.name)
		}
	}
	if min(cfg.Timeout, cfg.LoadTimeout, cfg.RestockWait, cfg.ReloadWait, cfg.ReloadTimeout, cfg.StockTimeout) < 0 {
		return errors.New("a time is negative")
	}
	return nil
}

// maxReadings bounds how many items, and pages of dead letters, are read at once. A reading fetches every mark of an item; dashboards must not make
// that a load on the servers that sell.
const maxReadings = 2

// API answers below /admin.
type API struct {
	cfg      Config
	requests *prometheus.CounterVec
	readings chan struct{} // one element per reading under way
	reloads  *reloads
	table    []route
	guarded  http.Handler
}

// New returns the API. Close it in the end.
func New(cfg Config) (*API, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("make admin API: %w", err)
	}
	api := &API{
		cfg: cfg,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flashgate_admin_requests_total",
			Help: "Requests to the admin API by route and status.",
		}, []string{"route", "status"}),
		readings: make(chan struct{}, maxReadings),
		reloads:  newReloads(),
	}
	if err := cfg.Registerer.Register(api.requests); err != nil {
		return nil, fmt.Errorf("make admin API: register metrics: %w", err)
	}
	api.table = api.routes()
	api.guarded = ops.RequireToken(cfg.Token, http.HandlerFunc(api.route))
	return api, nil
}

// ServeHTTP implements http.Handler for the path /admin and all below it.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.guarded.ServeHTTP(w, r) }
