package token

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Defaults of a KeySetConfig.
const (
	DefaultRefreshEvery = 5 * time.Minute
	DefaultCoolDown     = 30 * time.Second
	DefaultFetchTimeout = 5 * time.Second
)

// KeySetConfig says where a key set is and how often it is fetched.
type KeySetConfig struct {
	// URL of the key set: https, or http where the network can be trusted; without user
	// and fragment. Required.
	URL string
	// Beside are the keys of the configuration that tokens may be signed with, too.
	// Nil: none.
	Beside *Keys
	// RefreshEvery is how long a set counts as fresh, less up to a half at random. At
	// least CoolDown. Default DefaultRefreshEvery.
	RefreshEvery time.Duration
	// CoolDown is the least time between two downloads, whatever tokens arrive and
	// whatever the source answers. Default DefaultCoolDown.
	CoolDown time.Duration
	// Timeout of a download, redirects included. Default DefaultFetchTimeout.
	Timeout time.Duration
	// Transport sends the requests. Default: one of its own, with the proxies that the
	// environment names (HTTPS_PROXY) and the authorities that the system trusts.
	Transport http.RoundTripper
	// Now is the clock for the age of the set. Default time.Now.
	Now func() time.Time
	// Logger hears of changes and failures, and never of keys. Default: none.
	Logger *slog.Logger
	// Registerer gets the metrics flashgate_token_jwks_*, of one KeySet. Nil: nothing is
	// registered.
	Registerer prometheus.Registerer
}

// WithDefaults fills in what is not set.
func (c KeySetConfig) WithDefaults() KeySetConfig {
	if c.RefreshEvery == 0 {
		c.RefreshEvery = DefaultRefreshEvery
	}
	if c.CoolDown == 0 {
		c.CoolDown = DefaultCoolDown
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultFetchTimeout
	}
	if c.Transport == nil {
		c.Transport = newTransport()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate says what is wrong with the configuration, defaults filled in.
func (c KeySetConfig) Validate() error {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.Fragment != "":
		// The address itself may hold a password, and stays out of the message.
		return errors.New("the address must be a URL with https or http, without user and fragment")
	case c.CoolDown <= 0:
		return fmt.Errorf("the cool-down must be above 0, not %v", c.CoolDown)
	case c.RefreshEvery < c.CoolDown:
		return fmt.Errorf("the time between refreshes, %v, must be at least the cool-down, %v", c.RefreshEvery, c.CoolDown)
	case c.Timeout <= 0:
		return fmt.Errorf("the timeout must be above 0, not %v", c.Timeout)
	case c.Transport == nil || c.Now == nil || c.Logger == nil:
		return errors.New("there is no transport, clock or logger")
	}
	return nil
}

// KeySet are the keys that a provider publishes as a JSON Web Key Set (RFC 7517), beside those of the configuration. It
// is kept up to date by Run; every other method answers from memory. Safe for concurrent use.
//
// Which keys count: RSA of 2048 to 8192 bits for RS256, EC on P-256 for ES256, Ed25519 for EdDSA, each with that alg or
// none, with the use sig or none, with verify among its key_ops or none. Secrets, keys published with their private
// part, several keys of one algorithm with one kid, and keys of other kinds are left out, and do not spoil the rest of
// the set. A key without kid counts only as the only one of its algorithm.
//
// Which key a token is held against: the one with its algorithm and kid, if the set has it; else the keys of the
// configuration for that algorithm. A token without kid: those of the configuration, and the set's key if it has just
// one for that algorithm. A provider that rotates its keys has to put the kid in its tokens.
//
// Rotation: every successful download replaces the set whole, so that a key which is gone verifies nothing from then
// on. A token whose kid is not in the set is refused at once, as nobody on the way of a purchase waits for another
// server, and asks for a download. It takes place when CoolDown has passed since the last, and however many tokens ask
// there is one. Providers publish a key before they sign with it, so that the refreshes of every RefreshEvery find it
// in time; with one that does not, buyers get 401 until the download that the first of them caused is there.
//
// Failure: whatever goes wrong, the last good set stays in use, without an end, and its age is a metric. A source that
// cannot be reached is tried again after waits that grow from a second to CoolDown; one that answers with anything but
// a usable set, after CoolDown and up to half of it more.
type KeySet struct {
	cfg    KeySetConfig
	url    *url.URL
	source string // of the URL, what may be logged: queries can hold secrets
	client *http.Client
	static *Keys

	ring    atomic.Pointer[keyring]
	fetched atomic.Pointer[time.Time] // when the set was last seen; before that, the start
	ready   atomic.Bool               // there was a set
	asked   chan struct{}             // holds one: a token came whose key is not known
	metrics setMetrics

	mu   sync.Mutex        // one download at a time; guards last
	last [sha256.Size]byte // hash of the text that ring was made from
}

var _ KeySource = (*KeySet)(nil)

// NewKeySet makes a key set without fetching it: Run does, or Refresh. Until then only the keys of the configuration
// verify.
func NewKeySet(cfg KeySetConfig) (*KeySet, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("make key set: %w", err)
	}
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, errors.New("make key set: its address is no URL")
	}
	s := &KeySet{
		cfg:    cfg,
		url:    u,
		source: u.Scheme + "://" + u.Host + u.EscapedPath(),
		client: &http.Client{Transport: cfg.Transport, CheckRedirect: checkRedirect(u.Scheme)},
		static: cfg.Beside,
		asked:  make(chan struct{}, 1),
	}
	if s.static == nil {
		s.static = &Keys{given: map[string]any{}}
	}
	start := cfg.Now()
	s.fetched.Store(&start)
	ring, _ := newKeyring(nil, s.static)
	s.ring.Store(ring)
	if s.metrics, err = newSetMetrics(cfg.Registerer, func() float64 { return cfg.Now().Sub(*s.fetched.Load()).Seconds() }); err != nil {
		return nil, fmt.Errorf("make key set: register metrics: %w", err)
	}
	return s, nil
}

// Key implements KeySource. It does not block and does not allocate.
func (s *KeySet) Key(algorithm, id string) (any, bool) {
	key, known := s.ring.Load().find(algorithm, id)
	if !known && algorithm != HS256 { // no set has secrets
		s.ask()
	}
	return key, key != nil
}

// Pending implements KeySource: no key of the set is known until it was fetched for the first time.
func (s *KeySet) Pending(algorithm string) bool { return algorithm != HS256 && !s.ready.Load() }

// ask asks Run for a download, which decides when. It never waits: where somebody has asked already, that will do.
func (s *KeySet) ask() {
	select {
	case s.asked <- struct{}{}:
	default:
	}
}

// Check says what is missing as long as there has been no set: tokens of the provider cannot be verified. It has the
// form of a readiness check.
func (s *KeySet) Check(context.Context) error {
	if !s.ready.Load() {
		return fmt.Errorf("the key set of %s has not been fetched yet", s.source)
	}
	return nil
}

// Algorithms are those that have a key now, in the set or in the configuration, in the order HS256, RS256, ES256,
// EdDSA.
func (s *KeySet) Algorithms() []string { return s.ring.Load().algorithms() }
