package config

import (
	"net/netip"
	"time"

	"flashgate/limiter"
)

// Known secrets of the command dev. Every other role refuses them: they are in the documentation.
const (
	DevJWTSecret  = "dev-secret-not-for-production-000000" //nolint:gosec // G101: known to everybody
	DevAdminToken = "dev-admin"
	// DevPaymentSecret signs payments of flashgate dev.
	DevPaymentSecret = "dev-payments-not-for-production"
)

// Public is where shoppers come in.
type Public struct {
	Listen string `name:"listen" env:"FLASHGATE_LISTEN" default:":8080" type:"address" group:"Listeners" help:"Public edge"`
}

// Admin is the listener for operators, which every role has.
type Admin struct {
	AdminListen string `name:"admin-listen" env:"FLASHGATE_ADMIN_LISTEN" default:"${admin_listen}" type:"address" group:"Listeners" help:"Health, metrics and, on gateways, the admin API"`
	AdminToken  Secret `name:"admin-token" env:"FLASHGATE_ADMIN_TOKEN" default:"${admin_token}" none:"none: /admin and /debug/pprof refuse" type:"token" group:"Listeners" help:"Bearer token of the admin API and of /debug/pprof"`
}

// AdminClient is how the shell commands reach the admin API.
type AdminClient struct {
	AdminURL   string `name:"admin-url" env:"FLASHGATE_ADMIN_URL" default:"http://127.0.0.1:9090" type:"http-url" group:"Admin API" help:"Admin listener of a gateway"`
	AdminToken Secret `name:"admin-token" env:"FLASHGATE_ADMIN_TOKEN" none:"none" type:"token" group:"Admin API" help:"Bearer token of the admin API"`
}

// PublicClient is how the shell commands reach the public edge.
type PublicClient struct {
	URL string `name:"url" env:"FLASHGATE_URL" default:"http://127.0.0.1:8080" type:"http-url" help:"Public edge of a gateway"`
}

// Redis is the server, or the servers, of the stock.
type Redis struct {
	URL Secret `name:"redis-url" env:"FLASHGATE_REDIS_URL" default:"redis://127.0.0.1:6379" type:"redis" group:"Redis" help:"redis://USER:PASSWORD@HOST:PORT/DB, rediss:// for TLS, addr= for more nodes, master_set= for Sentinel, or off for none"`
}

// Off reports whether there is no Redis.
func (r Redis) Off() bool { return r.URL == "" }

// Kafka is how the brokers are reached.
type Kafka struct {
	Brokers       []string `name:"kafka-brokers" env:"FLASHGATE_KAFKA_BROKERS" default:"127.0.0.1:9092" type:"brokers" group:"Kafka" help:"Brokers from which the cluster is found, or off for none"`
	TLS           bool     `name:"kafka-tls" env:"FLASHGATE_KAFKA_TLS" default:"off" type:"switch" group:"Kafka" help:"Encrypt the connections, on or off"`
	SASLMechanism string   `name:"kafka-sasl-mechanism" env:"FLASHGATE_KAFKA_SASL_MECHANISM" default:"off" type:"mechanism" group:"Kafka" help:"plain, scram-sha-256, scram-sha-512 or off"`
	SASLUser      string   `name:"kafka-sasl-user" env:"FLASHGATE_KAFKA_SASL_USER" none:"none" type:"text" group:"Kafka" help:"User, with a mechanism"`
	SASLPassword  Secret   `name:"kafka-sasl-password" env:"FLASHGATE_KAFKA_SASL_PASSWORD" none:"none" type:"secret" group:"Kafka" help:"Password, with a mechanism"`
}

// Off reports whether there is no Kafka.
func (k Kafka) Off() bool { return len(k.Brokers) == 0 }

// KafkaGroup is the consumer group of the order writers. Whoever loads stock must know it too: a load waits for what the group has written.
type KafkaGroup struct {
	Group string `name:"kafka-group" env:"FLASHGATE_KAFKA_GROUP" default:"order-writer" type:"text" group:"Kafka" help:"Consumer group of the order writers"`
}

// KafkaMember tells one order writer of the group from the others.
type KafkaMember struct {
	ConsumerID string `name:"consumer-id" env:"FLASHGATE_CONSUMER_ID" none:"none" type:"member-id" group:"Kafka" help:"Name of this process in the group that outlives a restart and that no other process has: whoever is killed and comes back under it has its partitions again at once"`
}

// KafkaTopics is how missing topics are created.
type KafkaTopics struct {
	Partitions  int `name:"kafka-partitions" env:"FLASHGATE_KAFKA_PARTITIONS" default:"12" min:"1" max:"10000" type:"count" group:"Kafka" help:"Partitions of a topic that is created"`
	Replication int `name:"kafka-replication" env:"FLASHGATE_KAFKA_REPLICATION" default:"1" min:"1" max:"100" type:"count" group:"Kafka" help:"Replicas of a topic that is created"`
}

// Database is the PostgreSQL of the orders.
type Database struct {
	URL Secret `name:"database-url" env:"FLASHGATE_DATABASE_URL" none:"none: required" type:"postgres" group:"PostgreSQL" help:"postgres://USER:PASSWORD@HOST:PORT/DATABASE or key=value pairs, with pool_max_conns=N for the number of connections"`
}

// Auth is how the tokens of shoppers are verified.
type Auth struct {
	JWTSecret        Secret        `name:"jwt-secret" env:"FLASHGATE_JWT_SECRET" default:"${jwt_secret}" none:"none" type:"hmac-key" group:"Tokens" help:"HS256 key, at least 32 bytes"`
	JWTPublicKeyFile string        `name:"jwt-public-key-file" env:"FLASHGATE_JWT_PUBLIC_KEY_FILE" none:"none" type:"file" group:"Tokens" help:"PEM file with the public key for RS256, ES256 or EdDSA"`
	JWKSURL          string        `name:"jwt-jwks-url" env:"FLASHGATE_JWT_JWKS_URL" none:"none" type:"keys-url" group:"Tokens" help:"Key set (JWKS) whose keys are taken over as they rotate"`
	JWTIssuer        string        `name:"jwt-issuer" env:"FLASHGATE_JWT_ISSUER" none:"none: not checked" type:"text" group:"Tokens" help:"Issuer that a token must name"`
	JWTAudience      string        `name:"jwt-audience" env:"FLASHGATE_JWT_AUDIENCE" none:"none: not checked" type:"text" group:"Tokens" help:"Audience that a token must name"`
	JWTLeeway        time.Duration `name:"jwt-leeway" env:"FLASHGATE_JWT_LEEWAY" default:"30s" min:"0s" max:"5m" type:"duration" group:"Tokens" help:"Difference of clocks that is forgiven"`
}

// TokenSigner is what the command token signs with, and what it writes into tokens so that a gateway with the same settings takes them.
type TokenSigner struct {
	JWTSecret   Secret `name:"jwt-secret" env:"FLASHGATE_JWT_SECRET" none:"none: required" type:"hmac-key" group:"Tokens" help:"HS256 key, at least 32 bytes"`
	JWTIssuer   string `name:"jwt-issuer" env:"FLASHGATE_JWT_ISSUER" none:"none" type:"text" group:"Tokens" help:"Issuer that the token names"`
	JWTAudience string `name:"jwt-audience" env:"FLASHGATE_JWT_AUDIENCE" none:"none" type:"text" group:"Tokens" help:"Audience that the token names"`
}

// Proxies says who may name the client.
type Proxies struct {
	TrustedProxies []netip.Prefix `name:"trusted-proxies" env:"FLASHGATE_TRUSTED_PROXIES" default:"${trusted_proxies}" none:"none" type:"networks" group:"Limits" help:"Networks whose peers may name the client in a header"`
	ClientIPHeader string         `name:"client-ip-header" env:"FLASHGATE_CLIENT_IP_HEADER" default:"X-Forwarded-For" type:"header" group:"Limits" help:"That header"`
}

// Limits are the token buckets of one process, and how much may wait for the broker.
type Limits struct {
	RateUser    limiter.Rate `name:"rate-user" env:"FLASHGATE_RATE_USER" default:"5/s:10" type:"rate" group:"Limits" help:"Purchases per user, EVENTS/UNIT:BURST with the unit s, m or h, or off"`
	RateIP      limiter.Rate `name:"rate-ip" env:"FLASHGATE_RATE_IP" default:"100/s:200" type:"rate" group:"Limits" help:"Purchases per client address, IPv6 by /64"`
	RateRead    limiter.Rate `name:"rate-read" env:"FLASHGATE_RATE_READ" default:"20/s:40" type:"rate" group:"Limits" help:"Order reads and cancels per user"`
	OutboxLimit int64        `name:"outbox-limit" env:"FLASHGATE_OUTBOX_LIMIT" default:"200000" min:"1" max:"100000000" type:"count" group:"Limits" help:"Reservations of one item that may wait for the broker; beyond it 503 OVERLOADED"`
}

// Deadlines are the times that gateway and consumer must agree on.
type Deadlines struct {
	RecordDeadline time.Duration `name:"record-deadline" env:"FLASHGATE_RECORD_DEADLINE" default:"2s" min:"100ms" max:"5m" type:"duration" group:"Times" help:"From sending a reservation until the gateway leaves its record to the keeper"`
	GiveUp         time.Duration `name:"give-up" env:"FLASHGATE_GIVE_UP" default:"5m" min:"50ms" max:"168h" type:"duration" group:"Times" help:"Age at which a reservation that never reached the broker is cancelled and its unit returned"`
}

// Timeouts are the times of a purchase.
type Timeouts struct {
	Request time.Duration `name:"request-timeout" env:"FLASHGATE_REQUEST_TIMEOUT" default:"3s" min:"10ms" max:"5m" type:"duration" group:"Times" help:"A purchase is answered within this"`
	Publish time.Duration `name:"publish-timeout" env:"FLASHGATE_PUBLISH_TIMEOUT" none:"a third of the request timeout, at most 1s" min:"1ms" max:"5m" type:"duration" group:"Times" help:"Part of it that waits for the broker; afterwards 202 all the same"`
	Deadlines
}

// PublishTimeout returns Publish, or what stands for it when it is not set: a third of the request timeout, at most a second.
func (t Timeouts) PublishTimeout() time.Duration {
	if t.Publish != 0 {
		return t.Publish
	}
	return min(t.Request/3, time.Second)
}

// Shutdown is how long a role takes to stop.
type Shutdown struct {
	ShutdownTimeout time.Duration `name:"shutdown-timeout" env:"FLASHGATE_SHUTDOWN_TIMEOUT" default:"15s" min:"100ms" max:"10m" type:"duration" group:"Times" help:"After SIGTERM or SIGINT: drain, flush and exit within this"`
}

// Browsers is which pages may call the public API.
type Browsers struct {
	CORSOrigins []string `name:"cors-origins" env:"FLASHGATE_CORS_ORIGINS" none:"none" type:"origins" group:"Browsers" help:"Origins whose pages may call the public API, or * for every one"`
}

// Payments is how the payment provider proves that it is the one.
type Payments struct {
	PaymentSecret Secret `name:"payment-secret" env:"FLASHGATE_PAYMENT_SECRET" default:"${payment_secret}" none:"none: the webhook refuses" type:"secret" group:"Payments" help:"HMAC key of the payment webhook"`
}

// PaymentSigner is what plays the payment provider, with the key that the gateway has.
type PaymentSigner struct {
	PaymentSecret Secret `name:"payment-secret" env:"FLASHGATE_PAYMENT_SECRET" none:"none: required" type:"secret" group:"Payments" help:"HMAC key of the payment webhook"`
}

// Retire is when what is over is cleared away.
type Retire struct {
	RetireAfter time.Duration `name:"retire-after" env:"FLASHGATE_RETIRE_AFTER" default:"24h" min:"0s" max:"8760h" type:"duration" group:"Times" help:"After the end of a sale, until its keys are removed from Redis"`
}

// Reconcile is how often what Redis holds is compared with the database; 0: never.
type Reconcile struct {
	ReconcileEvery time.Duration `name:"reconcile-every" env:"FLASHGATE_RECONCILE_EVERY" default:"1m" min:"1s" max:"24h" off:"" type:"duration" group:"Times" help:"How often items on sale are compared with the database, for a metric and an alarm; off: never"`
}
