package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"kafka-gateway.local/drivers/lines"
)

func (d *driver) logIn(ctx context.Context, l lines.Login) error {
	secure, err := l.TLS()
	if err != nil {
		return err
	}
	d.server = []kgo.Opt{kgo.SeedBrokers(l.Bootstrap), kgo.DialTLSConfig(secure)}
	if l.Mechanism != "" {
		d.server = append(d.server, kgo.SASL(mechanism(l)))
	}
	client, err := d.client()
	if err != nil {
		return err
	}
	d.admin = kadm.NewClient(client)
	_, err = d.admin.ListTopics(ctx)
	return err
}

func mechanism(l lines.Login) sasl.Mechanism {
	switch l.Mechanism {
	case "PLAIN":
		return plain.Auth{User: l.User, Pass: l.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: l.User, Pass: l.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: l.User, Pass: l.Password}.AsSha512Mechanism()
	}
	return oauth.Auth{Token: l.Token}.AsMechanism()
}
