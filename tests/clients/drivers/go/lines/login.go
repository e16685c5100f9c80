package lines

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
)

// Login has the arguments of log_in.
type Login struct {
	Bootstrap   string  `json:"bootstrap"`
	Mechanism   string  `json:"mechanism"`
	User        string  `json:"user"`
	Password    string  `json:"password"`
	Token       string  `json:"token"`
	Authority   *string `json:"authority"`
	Certificate *string `json:"certificate"`
	Key         *string `json:"key"`
}

// TLS is nil when the server has none.
func (l Login) TLS() (*tls.Config, error) {
	if l.Authority == nil {
		return nil, nil
	}
	text, err := os.ReadFile(*l.Authority)
	if err != nil {
		return nil, err
	}
	settings := &tls.Config{RootCAs: x509.NewCertPool()}
	if !settings.RootCAs.AppendCertsFromPEM(text) {
		return nil, errors.New("no certificate in " + *l.Authority)
	}
	if l.Certificate != nil {
		own, err := tls.LoadX509KeyPair(*l.Certificate, *l.Key)
		if err != nil {
			return nil, err
		}
		settings.Certificates = []tls.Certificate{own}
	}
	return settings, nil
}
