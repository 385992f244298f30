package main

// cli are the commands, in the order of the help. Each has a file of its own. A command embeds the groups of settings that it uses, and has a
// method Run(ctx context.Context, std *console) error.
type cli struct {
	Dev       devCommand       `kong:"cmd,set='known_secrets=allowed',set='jwt_secret=dev-secret-not-for-production-000000',set='admin_token=dev-admin',set='payment_secret=dev-payments-not-for-production',set='trusted_proxies=127.0.0.0/8,::1',help='Run the whole system in one process, on private servers, with a demo sale.'"`
	Migrate   migrateCommand   `cmd:"" help:"Bring the database schema and the Kafka topics to what this version needs."`
	Gateway   gatewayCommand   `cmd:"" help:"Run the edge that sells, with the admin API."`
	Consumer  consumerCommand  `kong:"cmd,set='admin_listen=127.0.0.1:9091',help='Run the order writer and the keeper.'"`
	Token     tokenCommand     `cmd:"" help:"Print a bearer token for a user."`
	Sale      saleCommands     `cmd:"" help:"Create, show and change sales."`
	Item      itemCommands     `cmd:"" help:"Show, restock and change items."`
	Order     orderCommands    `cmd:"" help:"Show orders, and mark refunds."`
	Audit     auditCommand     `cmd:"" help:"List what people have changed, newest first."`
	Dlq       dlqCommands      `cmd:"" help:"List and replay dead letters."`
	Pay       payCommand       `cmd:"" help:"Play the payment provider: tell the webhook about a payment."`
	Preflight preflightCommand `cmd:"" help:"Say go or no-go before a sale: servers, schema, topics, clocks, keys, stock."`
	Purge     purgeCommand     `cmd:"" help:"Delete orders of sales that are long over, or forget their users; says first what it would do."`
	Bench     benchCommands    `cmd:"" help:"Put a crowd in front of a gateway and check what was sold."`
	Version   versionCommand   `cmd:"" help:"Print version, commit, Go and supported schema."`
}
