package config

import (
	"reflect"
	"slices"
)

// groups are all groups of settings, whichever command embeds them.
var groups = []any{
	Public{}, Admin{}, AdminClient{}, PublicClient{}, Redis{}, Kafka{}, KafkaGroup{}, KafkaMember{}, KafkaTopics{}, Database{}, Auth{}, TokenSigner{}, Proxies{}, Limits{},
	Timeouts{}, Shutdown{}, Browsers{}, Payments{}, PaymentSigner{}, Retire{}, Reconcile{},
}

// Names returns the variables of all commands, sorted.
func Names() []string {
	var names []string
	var collect func(t reflect.Type)
	collect = func(t reflect.Type) {
		for i := range t.NumField() {
			field := t.Field(i)
			if name := field.Tag.Get("env"); name != "" {
				names = append(names, name)
			} else if field.Anonymous {
				collect(field.Type)
			}
		}
	}
	for _, group := range groups {
		collect(reflect.TypeOf(group))
	}
	slices.Sort(names)
	return slices.Compact(names)
}
