package main

import (
	"flashgate/internal/broker"
	"flashgate/internal/config"
	"flashgate/internal/keeper"
)

// startWriter starts the order writer and the keeper.
func startWriter(l *life, p *parts, kafka broker.Config, deadlines config.Deadlines) (*keeper.Keeper, error) {
	k, err := keeper.New(keeperConfig(p, deadlines, kafka.Group))
	if err != nil {
		return nil, err
	}
	l.background("the keeper", k.Run)
	return k, nil
}
