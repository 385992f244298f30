package e2e

import (
	"strings"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
)

// outage is a server that a gateway needs and does not find.
type outage struct {
	name string
	// begin makes the server unreachable for what is started with the environment that it returns, and end lets it be reached again.
	begin func(t *testing.T) (s *shop, env []string, end func(t *testing.T))
	check string // what the readiness calls it
}

func outageOfRedis(frozen bool) func(t *testing.T) (*shop, []string, func(*testing.T)) {
	return func(t *testing.T) (*shop, []string, func(*testing.T)) {
		t.Helper()
		server := devtest.Redis(t)
		s := newShop(t, server.URL(), kfake(t), "FLASHGATE_CORS_ORIGINS="+pageOrigin)
		if frozen {
			line := newIcyLine(t, server.URL())
			line.freeze()
			return s, withSetting(s.env, "FLASHGATE_REDIS_URL", line.url), func(*testing.T) { line.thaw() }
		}
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		return s, s.env, func(t *testing.T) {
			t.Helper()
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func outageOfPostgres(frozen bool) func(t *testing.T) (*shop, []string, func(*testing.T)) {
	return func(t *testing.T) (*shop, []string, func(*testing.T)) {
		t.Helper()
		server := privatePostgres(t)
		database := server.DSN("away")
		s := newShopOn(t, database, devtest.Redis(t).URL(), kfake(t), "FLASHGATE_CORS_ORIGINS="+pageOrigin)
		if frozen {
			line := newIcyLine(t, database)
			line.freeze()
			return s, withSetting(s.env, "FLASHGATE_DATABASE_URL", line.url), func(*testing.T) { line.thaw() }
		}
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		return s, s.env, func(t *testing.T) {
			t.Helper()
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

var outagesAtStart = []outage{
	{"Redis is away", outageOfRedis(false), "redis"}, {"Redis is frozen", outageOfRedis(true), "redis"},
	{"PostgreSQL is away", outageOfPostgres(false), "postgresql"}, {"PostgreSQL is frozen", outageOfPostgres(true), "postgresql"},
}

// A gateway that is started during an outage answers: that one should come again, and operators why. It sells as soon as everything is there.
func TestGatewayStartsDuringAnOutage(t *testing.T) {
	for _, o := range outagesAtStart {
		t.Run(o.name, func(t *testing.T) {
			s, env, end := o.begin(t)
			g := start(t, env, "gateway")
			s.gateways = []*role{g}
			bearer := map[string]string{"Authorization": "Bearer " + tokenOf(t, "1"), "Origin": pageOrigin}
			order := "/api/flash-sales/orders/" + sale.NewOrderID(1001).String()
			for _, call := range []string{
				"POST /api/flash-sales/items/1001/purchase", "GET /api/flash-sales/items/1001", "GET " + order, "DELETE " + order, "GET /api/flash-sales/orders?itemId=1001",
			} {
				method, path, _ := strings.Cut(call, " ")
				a := s.try(method, g.public+path, bearer, nil)
				if a.status != 503 || a.code() != "UNAVAILABLE" || a.header.Get("Retry-After") != "1" || a.header.Get("Access-Control-Allow-Origin") != pageOrigin {
					t.Errorf("%s: %v %v, want 503 UNAVAILABLE", call, a, a.header)
				}
			}
			if a := s.try("GET", g.public+"/livez", nil, nil); a.status != 200 {
				t.Errorf("livez: %v", a)
			}
			if a := s.try("GET", g.public+"/readyz", nil, nil); a.status != 503 {
				t.Errorf("readyz: %v", a)
			}
			devtest.Eventually(t, 30*time.Second, func() bool {
				a := s.try("GET", g.admin+"/readyz", nil, nil)
				return a.status == 503 && strings.Contains(a.text, `"`+o.check+`"`)
			}, "operators are not told of %s", o.check)
			end(t)
			s.awaitReady(g)
			devtest.Eventually(t, 30*time.Second, func() bool { return s.try("GET", g.public+"/readyz", nil, nil).status == 200 }, "the public edge does not become ready")
			if a := s.buy(0, s.offer(1, 1), "1", ""); a.status != 202 {
				t.Errorf("buy after the outage: %v", a)
			}
			g.stop()
		})
	}
}

// Who is told to stop while he waits for a server has nothing left to do, and has not failed.
func TestGatewayStopsWhileItIsStarting(t *testing.T) {
	for _, o := range outagesAtStart {
		t.Run(o.name, func(t *testing.T) {
			_, env, _ := o.begin(t)
			g := start(t, append(env, "FLASHGATE_SHUTDOWN_TIMEOUT=3s"), "gateway")
			g.stop()
		})
	}
}
