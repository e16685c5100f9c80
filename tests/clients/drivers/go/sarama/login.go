package main

import (
	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"

	"kafka-gateway.local/drivers/lines"
)

var hashes = map[string]scram.HashGeneratorFcn{
	sarama.SASLTypeSCRAMSHA256: scram.SHA256, sarama.SASLTypeSCRAMSHA512: scram.SHA512,
}

func (d *driver) logIn(l lines.Login) error {
	secure, err := l.TLS()
	if err != nil {
		return err
	}
	d.bootstrap = []string{l.Bootstrap}
	d.login = func(settings *sarama.Config) {
		settings.Net.TLS.Enable, settings.Net.TLS.Config = secure != nil, secure
		login := &settings.Net.SASL
		login.Enable, login.Mechanism = l.Mechanism != "", sarama.SASLMechanism(l.Mechanism)
		login.User, login.Password, login.TokenProvider = l.User, l.Password, token(l.Token)
		login.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient {
			return &conversation{hash: hashes[l.Mechanism]}
		}
	}
	client, err := sarama.NewClient(d.bootstrap, d.config())
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = client.Topics()
	return err
}

// token is a provider of itself.
type token string

// Token implements sarama.AccessTokenProvider.
func (t token) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

// conversation is a sarama.SCRAMClient.
type conversation struct {
	hash scram.HashGeneratorFcn
	*scram.ClientConversation
}

// Begin implements sarama.SCRAMClient.
func (c *conversation) Begin(user, password, authorization string) error {
	client, err := c.hash.NewClient(user, password, authorization)
	if err == nil {
		c.ClientConversation = client.NewConversation()
	}
	return err
}
