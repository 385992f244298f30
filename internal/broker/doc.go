// Package broker is flashgate's side of Kafka: the topics, the form of the records, a producer that never blocks, and the questions that a load
// asks about consumer groups. It knows what a record means, and nothing of who writes or reads it.
//
// # Reading guide
//
//	config.go     connection settings and the franz-go options that follow from them   fault.go  which of them an error speaks against
//	topics.go     the names of the topics
//	record.go     sale.Event to record and back; PoisonError   order_event.go  the same for what became of orders and stock
//	deadletter.go the form of a dead letter
//	producer.go   Publish, Close   publish_events.go  PublishOrderEvent   attempt.go  one try to write the records of a call, and what follows from its failure
//	admin.go      readiness   ensure.go  creating topics   drain.go  has a group read everything up to here? how far is it behind?
//	metrics.go    flashgate_broker_*
//	brokertest/   tests on the in-process and the real Kafka
package broker
