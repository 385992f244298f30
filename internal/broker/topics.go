package broker

// The topics of flashgate.
const (
	// Orders carries one record per reservation, keyed by item and shard.
	Orders = "flash-sale-orders"
	// DeadLetters carries what the order writer could not store, with the reason in the headers.
	DeadLetters = "flash-sale-orders.dlq"
	// OrderEvents tells others what became of an order, keyed by order id.
	OrderEvents = "flash-sale-order-events"
)

// Topics returns the names of all topics in a fresh slice.
func Topics() []string { return []string{Orders, DeadLetters, OrderEvents} }
