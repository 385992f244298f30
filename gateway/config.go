package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config sets the limits and times of a gateway.
type Config struct {
	// RequestTimeout: a purchase is answered within this, counted from its last byte. Default 3 s.
	RequestTimeout time.Duration
	// PublishTimeout is the part of it that waits for the broker; afterwards the answer is 202 all the same. Default a third of it, at most 1 s.
	PublishTimeout time.Duration
	// RecordDeadline counts from asking for the units. After it no 202 is answered for a record that the broker did not acknowledge, because a
	// load may have gone by without it (rule R9). Default 2 s.
	RecordDeadline time.Duration
	// WarmupHold is how long a purchase waits while stock is being loaded, before it is told to come back. Default 300 ms.
	WarmupHold time.Duration
	// ReadTimeout is for reading one request whole; it also ends a connection on which nothing arrives. Default 10 s.
	ReadTimeout time.Duration
	// WriteTimeout is for writing one answer. Default 10 s.
	WriteTimeout time.Duration
	// IdleTimeout is how long a connection may wait for its next request. Default 60 s.
	IdleTimeout time.Duration
	// MaxHeader is the largest request line with headers, in bytes; every open connection has a buffer of that size. Default 16 KiB.
	MaxHeader int
	// MaxBody is the largest body, in bytes. Default 4 KiB.
	MaxBody int
	// MaxConns is the largest number of open connections; the next one is told 503 and closed. Each takes a file descriptor, of which the process needs
	// some hundred for other things. Default DefaultMaxConns.
	MaxConns int
	// MaxLooks bounds how many winners are looked up at the same time; beyond it a winner gets 503. Only winners are looked up while the set of
	// winners is known, so that it takes a fault to reach the bound. As many again who ask for more than one user may have are looked up beside
	// them; beyond it they are told so without. Default 256.
	MaxLooks int
	// CatalogueEvery is how often the catalogue is read again without being asked to. Default 1 s.
	CatalogueEvery time.Duration
	// CatalogueStale is the age of the catalogue from which on the gateway says that it is not ready. Default 15 s.
	CatalogueStale time.Duration

	// CORSOrigins are the origins whose pages may call the public API, as browsers write them, such as https://shop.example; or * alone for
	// every origin. Default none: no answer says anything about origins.
	CORSOrigins []string
	// PaymentSecret is the HMAC key of the payment provider's signatures. Without one every call of the webhook is refused. Its bytes must not
	// change any more.
	PaymentSecret []byte

	Logger     *slog.Logger          // default: nothing is logged
	Registerer prometheus.Registerer // default: metrics are counted and not shown
	Now        func() time.Time      // default time.Now
}

// DefaultMaxConns is the default of Config.MaxConns.
const DefaultMaxConns = 32768

// WithDefaults returns the configuration with every zero field filled in.
func (c Config) WithDefaults() Config {
	def := func(field *time.Duration, value time.Duration) {
		if *field == 0 {
			*field = value
		}
	}
	def(&c.RequestTimeout, 3*time.Second)
	def(&c.PublishTimeout, min(c.RequestTimeout/3, time.Second))
	def(&c.RecordDeadline, 2*time.Second)
	def(&c.WarmupHold, 300*time.Millisecond)
	def(&c.ReadTimeout, 10*time.Second)
	def(&c.WriteTimeout, 10*time.Second)
	def(&c.IdleTimeout, time.Minute)
	def(&c.CatalogueEvery, time.Second)
	def(&c.CatalogueStale, 15*time.Second)
	if c.MaxHeader == 0 {
		c.MaxHeader = 16 << 10
	}
	if c.MaxBody == 0 {
		c.MaxBody = 4 << 10
	}
	if c.MaxConns == 0 {
		c.MaxConns = DefaultMaxConns
	}
	if c.MaxLooks == 0 {
		c.MaxLooks = 256
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Validate says what is wrong with the configuration, defaults filled in.
func (c Config) Validate() error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"RequestTimeout", c.RequestTimeout},
		{"PublishTimeout", c.PublishTimeout},
		{"RecordDeadline", c.RecordDeadline},
		{"WarmupHold", c.WarmupHold},
		{"ReadTimeout", c.ReadTimeout},
		{"WriteTimeout", c.WriteTimeout},
		{"IdleTimeout", c.IdleTimeout},
		{"CatalogueEvery", c.CatalogueEvery},
		{"CatalogueStale", c.CatalogueStale},
	} {
		if d.value <= 0 {
			return fmt.Errorf("%s must be above zero, not %v", d.name, d.value)
		}
	}
	for _, n := range []struct {
		name         string
		value, least int
	}{
		{"MaxHeader", c.MaxHeader, 512},
		{"MaxBody", c.MaxBody, 64},
		{"MaxConns", c.MaxConns, 1},
		{"MaxLooks", c.MaxLooks, 1},
	} {
		if n.value < n.least {
			return fmt.Errorf("%s must be at least %d, not %d", n.name, n.least, n.value)
		}
	}
	if err := checkOrigins(c.CORSOrigins); err != nil {
		return err
	}
	switch {
	case c.PublishTimeout >= c.RequestTimeout:
		return fmt.Errorf("PublishTimeout (%v) must be below RequestTimeout (%v)", c.PublishTimeout, c.RequestTimeout)
	case c.PublishTimeout >= c.RecordDeadline:
		return fmt.Errorf("PublishTimeout (%v) must be below RecordDeadline (%v)", c.PublishTimeout, c.RecordDeadline)
	case c.Logger == nil || c.Now == nil:
		return errors.New("the logger or the clock is missing")
	}
	return nil
}
