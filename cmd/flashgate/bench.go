package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/term"

	"flashgate/bench"
	"flashgate/internal/admin"
	"flashgate/internal/config"
	"flashgate/internal/invariant"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
	"flashgate/internal/token"
	"flashgate/shard"
)

// benchCommands are the load scenarios.
type benchCommands struct {
	Rush rushCommand `cmd:"" help:"A crowd at the opening of a sale; starts a system of its own unless --url names a gateway."`
}

// rushCommand is bench.Rush from the shell.
type rushCommand struct {
	Shoppers    int `name:"shoppers" default:"50000" min:"1" max:"16777216" type:"count" help:"People who try to buy a unit each"`
	Stock       int `name:"stock" default:"1000" min:"0" max:"16777216" type:"count" help:"Units there are"`
	Shards      int `name:"shards" default:"13" min:"1" max:"256" type:"count" help:"Shards of the item"`
	Concurrency int `name:"concurrency" default:"256" min:"1" max:"65536" type:"count" help:"Requests in flight at once"`

	URL []string `name:"url" placeholder:"URL" help:"Public edge of a running gateway; may be given several times. It has to trust this machine as a proxy, and needs the settings below"`
	runningGateway
}

// runningGateway is what a crowd needs of a gateway that it did not start.
type runningGateway struct {
	AdminURL       string        `name:"admin-url" env:"FLASHGATE_ADMIN_URL" default:"http://127.0.0.1:9090" type:"http-url" group:"With --url" help:"Its admin listener"`
	AdminToken     config.Secret `name:"admin-token" env:"FLASHGATE_ADMIN_TOKEN" none:"none" type:"token" group:"With --url" help:"Bearer token of its admin API"`
	JWTSecret      config.Secret `name:"jwt-secret" env:"FLASHGATE_JWT_SECRET" none:"none" type:"hmac-key" group:"With --url" help:"HS256 key for the tokens of the shoppers"`
	JWTIssuer      string        `name:"jwt-issuer" env:"FLASHGATE_JWT_ISSUER" none:"none" type:"text" group:"With --url" help:"Issuer that the tokens name"`
	JWTAudience    string        `name:"jwt-audience" env:"FLASHGATE_JWT_AUDIENCE" none:"none" type:"text" group:"With --url" help:"Audience that the tokens name"`
	ClientIPHeader string        `name:"client-ip-header" env:"FLASHGATE_CLIENT_IP_HEADER" default:"X-Forwarded-For" type:"header" group:"With --url" help:"Header that names the client"`
	DatabaseURL    config.Secret `name:"database-url" env:"FLASHGATE_DATABASE_URL" none:"none" type:"postgres" group:"With --url" help:"Its PostgreSQL, to check what was sold"`
	RedisURL       config.Secret `name:"redis-url" env:"FLASHGATE_REDIS_URL" none:"none" type:"redis" group:"With --url" help:"Its Redis, likewise"`
}

// check names the first thing that is missing.
func (g runningGateway) check() error {
	for _, needed := range []struct {
		name  string
		value config.Secret
	}{
		{"FLASHGATE_ADMIN_TOKEN", g.AdminToken}, {"FLASHGATE_JWT_SECRET", g.JWTSecret}, {"FLASHGATE_DATABASE_URL", g.DatabaseURL}, {"FLASHGATE_REDIS_URL", g.RedisURL},
	} {
		if !needed.value.IsSet() {
			return &config.Error{Name: needed.name, Problem: "is needed with --url"}
		}
	}
	return nil
}

// Run implements the command.
func (c *rushCommand) Run(ctx context.Context, std *console) error {
	logger := slog.New(slog.NewTextHandler(std.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if len(c.URL) > 0 {
		if err := c.check(); err != nil {
			return err
		}
		return c.rush(ctx, std, c.URL, c.runningGateway)
	}
	dev, err := defaultDev()
	if err != nil {
		return err
	}
	l := newLife(logger)
	err = c.rushAtHome(ctx, std, l, logger, dev)
	return errors.Join(err, l.end(dev.ShutdownTimeout))
}

// defaultDev is the command dev as it is without any setting, listening wherever there is room. The environment may name real servers, and a crowd is
// let loose on those only by --url.
func defaultDev() (*devCommand, error) {
	var commands cli
	parser, err := kong.New(&commands, config.Options(config.NewEnv(nil))...)
	if err != nil {
		panic("flashgate: the commands contradict each other: " + err.Error()) // a mistake in the program
	}
	_, err = parser.Parse([]string{"dev", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"})
	return &commands.Dev, err
}

// rushAtHome starts the whole system for the crowd.
func (c *rushCommand) rushAtHome(ctx context.Context, std *console, l *life, logger *slog.Logger, dev *devCommand) error {
	_, _ = fmt.Fprintln(std.err, "starting a system of its own, with everything in this process but PostgreSQL ...")
	o, err := listenForOperators(l, logger, dev.Admin, withAPI)
	if err != nil {
		return err
	}
	set, public, err := dev.open(ctx, l, o, logger)
	if err != nil {
		return err
	}
	return c.rush(ctx, std, []string{"http://" + public}, runningGateway{
		AdminURL: "http://" + o.address(), AdminToken: dev.AdminToken, JWTSecret: dev.JWTSecret, JWTIssuer: dev.JWTIssuer, JWTAudience: dev.JWTAudience,
		ClientIPHeader: dev.ClientIPHeader, DatabaseURL: config.Secret(set.database), RedisURL: config.Secret(set.redis),
	})
}

// rush lets the crowd in and prints the report.
func (c *rushCommand) rush(ctx context.Context, std *console, gateways []string, g runningGateway) error {
	signer, err := token.NewSigner(token.SignerConfig{Secret: []byte(g.JWTSecret.Reveal()), Issuer: g.JWTIssuer, Audience: g.JWTAudience})
	if err != nil {
		return err
	}
	desk := admin.NewClient(g.AdminURL, g.AdminToken.Reveal())
	defer desk.Close()
	books, err := openAuditor(ctx, g.DatabaseURL.Reveal(), g.RedisURL.Reveal())
	if err != nil {
		return err
	}
	defer books.close()
	now := time.Now()
	report, err := bench.Rush{
		Shoppers: c.Shoppers, Stock: c.Stock, Shards: c.Shards, Concurrency: c.Concurrency, Gateways: gateways, ClientIPHeader: g.ClientIPHeader,
		CreateItem: func(ctx context.Context, stock, shards int) (int64, error) {
			return createItem(ctx, desk, stock, shards, now)
		},
		Sign:  func(user string) (string, error) { return signer.Sign(user, 24*time.Hour, now) },
		Audit: books, Progress: progress(std),
	}.Run(ctx)
	if report != nil {
		if _, printed := report.WriteTo(std.out); printed != nil {
			return errors.Join(err, printed)
		}
	}
	return err
}

// progress is where a bar may be drawn: a terminal, not a file or a pipe.
func progress(std *console) io.Writer {
	if file, ok := std.err.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return file
	}
	return nil
}

// createItem opens a sale for the crowd.
func createItem(ctx context.Context, desk *admin.Client, stock, shards int, now time.Time) (int64, error) {
	body, err := json.Marshal(map[string]any{
		"name": "rush " + now.UTC().Format(time.RFC3339), "startsAt": now.Add(-time.Minute).Format(time.RFC3339Nano), "endsAt": now.Add(24 * time.Hour).Format(time.RFC3339Nano),
		"items": []map[string]any{{"productId": 1, "sku": "RUSH", "quantity": stock, "price": "1980", "currency": "JPY", "shards": shards}},
	})
	if err != nil {
		return 0, err
	}
	created, err := desk.CreateSale(ctx, body)
	if err != nil {
		return 0, err
	}
	return created.Value.Items[0].ID, nil
}

// auditor checks an item in the database and Redis.
type auditor struct {
	database *pgxpool.Pool
	stock    *shard.Stock
	closeAll func()
}

func openAuditor(ctx context.Context, database, redis string) (*auditor, error) {
	pool, err := ledger.OpenPool(ctx, ledger.Config{URL: database, ApplicationName: "flashgate-bench", StatementTimeout: -1})
	if err != nil {
		return nil, err
	}
	client, err := shard.Connect(shard.ConnectConfig{URL: redis, ClientName: "flashgate-bench"})
	if err != nil {
		pool.Close()
		return nil, err
	}
	closeAll := func() {
		client.Close()
		pool.Close()
	}
	stock, err := shard.New(shard.Config{Client: client})
	if err != nil {
		closeAll()
		return nil, err
	}
	return &auditor{pool, stock, closeAll}, nil
}

func (a *auditor) close() { a.closeAll() }

// Audit implements bench.Auditor.
func (a *auditor) Audit(ctx context.Context, item int64, accepted []sale.OrderID) (bench.Audit, error) {
	report, err := invariant.Await(ctx, a.database, a.stock, item, accepted...)
	if err != nil {
		return bench.Audit{}, err
	}
	audit := bench.Audit{Quantity: report.Quantity, Sold: report.Sold, Available: report.Free, Pending: report.Open, InTransfer: report.Moving}
	for _, v := range report.Violations {
		audit.Violations = append(audit.Violations, v.String())
	}
	for _, u := range report.Unsettled {
		audit.Violations = append(audit.Violations, "not at rest: "+u)
	}
	return audit, nil
}
