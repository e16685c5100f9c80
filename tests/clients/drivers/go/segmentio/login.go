package main

import (
	"context"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"kafka-gateway.local/drivers/lines"
)

func (d *driver) logIn(ctx context.Context, l lines.Login) error {
	secure, err := l.TLS()
	if err != nil {
		return err
	}
	transport := &kafka.Transport{TLS: secure}
	if transport.SASL, err = mechanism(l); err != nil {
		return err
	}
	d.bootstrap = l.Bootstrap
	d.client = &kafka.Client{Addr: kafka.TCP(l.Bootstrap), Timeout: timeout, Transport: transport}
	d.dialer = &kafka.Dialer{Timeout: timeout, DualStack: true, TLS: secure, SASLMechanism: transport.SASL}
	_, err = d.client.Metadata(ctx, &kafka.MetadataRequest{})
	return err
}

func mechanism(l lines.Login) (sasl.Mechanism, error) {
	switch l.Mechanism {
	case "":
		return nil, nil
	case "PLAIN":
		return plain.Mechanism{Username: l.User, Password: l.Password}, nil
	case "SCRAM-SHA-256":
		return scram.Mechanism(scram.SHA256, l.User, l.Password)
	case "SCRAM-SHA-512":
		return scram.Mechanism(scram.SHA512, l.User, l.Password)
	}
	return nil, lines.Unsupported("no " + l.Mechanism)
}
