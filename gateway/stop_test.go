package gateway

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"flashgate/internal/sale"
)

// warnings is a log that keeps its warnings, and what is worse.
type warnings struct {
	slog.Handler
	mu    sync.Mutex
	lines []string
}

func (*warnings) Enabled(context.Context, slog.Level) bool { return true }

func (l *warnings) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Level >= slog.LevelWarn {
		l.lines = append(l.lines, r.Message)
	}
	return nil
}

func (l *warnings) list() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// Stopping ends whatever is under way, and that is no warning. The same that fails by itself is one.
func TestStopWarnsOfNothing(t *testing.T) {
	id := sale.NewOrderID(theItem)
	soldOut := func(t *testing.T, w *world, g *Gateway) {
		t.Helper()
		w.noStock()
		do(t, g, purchaseOf(w.token(t, "loser"))).want(t, 410, "SOLD_OUT")
	}
	request := func(of func(t *testing.T, w *world) ask) func(*testing.T, *world, *Gateway) {
		return func(t *testing.T, w *world, g *Gateway) {
			t.Helper()
			a := of(t, w)
			go do(t, g, a)
		}
	}
	order := func(method string) func(*testing.T, *world, *Gateway) {
		return request(func(t *testing.T, w *world) ask {
			t.Helper()
			return ask{method: method, path: orderPath(id), token: w.token(t, "u")}
		})
	}
	type hang func(context.Context) error
	for name, c := range map[string]struct {
		prepare func(w *world, h hang)
		begin   func(t *testing.T, w *world, g *Gateway)
		warning string
	}{
		"proof": {func(w *world, h hang) {
			w.prove = func(ctx context.Context, _ *sale.Item) (Proof, error) { return nil, h(ctx) }
		}, soldOut, "prove item empty"},
		"proof that ends too late": {func(w *world, h hang) {
			w.prove = func(ctx context.Context, _ *sale.Item) (Proof, error) {
				_ = h(ctx)
				return proof{empty: true, at: time.Now().Add(-flagAge)}, nil
			}
		}, soldOut, "set sold-out flag: the proof took too long"},
		"winners of a flag": {func(w *world, h hang) {
			w.fetch = func(ctx context.Context, _ func(string)) error { return h(ctx) }
		}, soldOut, "set sold-out flag"},
		"announcement": {func(w *world, h hang) {
			w.announce = func(ctx context.Context, _ Notice) error { return h(ctx) }
		}, soldOut, "announce sold-out flag"},
		"re-proof": {func(w *world, h hang) {
			w.reprove = func(ctx context.Context, _ *sale.Item, _ Proof) (Reproof, error) { return Reproof{}, h(ctx) }
		}, func(t *testing.T, w *world, g *Gateway) {
			t.Helper()
			flagIt(t, w, g)
			sleep(reproveEvery)
		}, "prove item empty again"},
		"winners of a re-proof": {func(w *world, h hang) {
			w.reprove = func(context.Context, *sale.Item, Proof) (Reproof, error) {
				return Reproof{Same: true, BuyersChanged: true, Next: proof{empty: true, at: time.Now()}}, nil
			}
			fetches := 0
			w.fetch = func(ctx context.Context, _ func(string)) error {
				switch fetches++; fetches {
				case 1: // the flag is set
					return nil
				case 2: // once more with the old ones
					return errDown
				}
				return h(ctx)
			}
		}, func(t *testing.T, w *world, g *Gateway) {
			t.Helper()
			flagIt(t, w, g)
			sleep(2 * reproveEvery)
		}, "fetch buyers again"},
		"winners of an ended item": {func(w *world, h hang) {
			w.items[0].EndsAt = time.Now().Add(-time.Minute)
			w.fetch = func(ctx context.Context, _ func(string)) error { return h(ctx) }
		}, func(*testing.T, *world, *Gateway) {}, "fetch winners of ended item"},
		"catalogue": {func(*world, hang) {}, nil, "read catalogue: the last one stays in use"},
		"look-up of an order": {func(w *world, h hang) {
			w.row = func(ctx context.Context, _ sale.OrderID) (sale.Order, bool, error) {
				return sale.Order{}, false, h(ctx)
			}
		}, order("GET"), "look up order"},
		"look-up of a mark": {func(w *world, h hang) {
			w.mark = func(ctx context.Context, _ *sale.Item, _ string) (sale.Mark, bool, error) {
				return sale.Mark{}, false, h(ctx)
			}
		}, order("GET"), "look up mark of order"},
		"cancellation": {func(w *world, h hang) {
			w.cancel = func(ctx context.Context, _ sale.OrderID, _ string) (sale.Order, Cancellation, error) {
				return sale.Order{}, 0, h(ctx)
			}
		}, order("DELETE"), "cancel order"},
		"payment": {func(w *world, h hang) {
			w.pay = func(ctx context.Context, _ sale.Payment) (sale.PaymentResult, PayOutcome, error) {
				return sale.PaymentResult{}, 0, h(ctx)
			}
		}, request(func(*testing.T, *world) ask { return payment(paymentBody(id, "SUCCEEDED")) }), "record payment"},
	} {
		for how, stops := range map[string]bool{"stops": true, "fails": false} {
			t.Run(name+", "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					underWay, fail := make(chan struct{}, 100), make(chan struct{})
					h := func(ctx context.Context) error {
						underWay <- struct{}{}
						select {
						case <-ctx.Done():
							if !errors.Is(context.Cause(ctx), context.Canceled) {
								t.Errorf("ended by its own time: %v", ctx.Err())
							}
							return ctx.Err()
						case <-fail:
							return errDown
						}
					}
					c.prepare(w, h)
					log := &warnings{}
					g := w.start(t, withSecret, func(cfg *Config) { cfg.Logger = slog.New(log) })
					if c.begin == nil {
						w.change(func() { w.catalogue = func(ctx context.Context) ([]sale.Item, error) { return nil, h(ctx) } })
						sleep(time.Second)
					} else {
						c.begin(t, w, g)
					}
					synctest.Wait()
					<-underWay
					if got := log.list(); len(got) > 0 {
						t.Fatalf("logged before anything happened: %q", got)
					}
					if stops {
						must(t, g.Shutdown(t.Context()))
						synctest.Wait()
						if got := log.list(); len(got) > 0 {
							t.Errorf("logged because of the stop: %q", got)
						}
						return
					}
					close(fail)
					synctest.Wait()
					if got := log.list(); !slices.Contains(got, c.warning) {
						t.Errorf("logged %q, want %q", got, c.warning)
					}
				})
			})
		}
	}
}

// Of an order of which stopping leaves open whether it exists there is a line, whoever is to blame.
func TestStopNamesOrdersInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.reserve = func(ctx context.Context, _ *sale.Item, q sale.Request) sale.Result {
			<-ctx.Done()
			return sale.Result{Outcome: sale.Unknown, OrderID: q.OrderID, Err: ctx.Err()}
		}
		log := &warnings{}
		g := w.start(t, func(cfg *Config) { cfg.Logger = slog.New(log) })
		answered := make(chan reply)
		go func() { answered <- do(t, g, purchaseOf(w.token(t, "u"))) }()
		synctest.Wait()
		must(t, g.Shutdown(t.Context()))
		(<-answered).want(t, 503, "OUTCOME_UNKNOWN")
		if got := log.list(); !slices.Equal(got, []string{"reserve: unknown"}) {
			t.Errorf("logged %q", got)
		}
	})
}
