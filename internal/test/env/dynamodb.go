//go:build integration

package env

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage/internal/test/images"
)

// DynamoDBServer is DynamoDB Local, or the service at ASHLAR_TEST_DYNAMODB_URL.
type DynamoDBServer struct {
	*Container

	// Endpoint is the base URL of the service, "" for AWS's own.
	Endpoint string
	// Region is the region for requests.
	Region string
	// Table is the table that all tests share, with a prefix each. Every table with a stream costs the emulator threads and memory,
	// and a long stream slows down all newer ones.
	Table string

	params url.Values // further parameters of a store's URL
}

var sharedDynamoDB shared[*DynamoDBServer]

// DynamoDB returns the server that all tests of the binary share: a container, or the service at ASHLAR_TEST_DYNAMODB_URL, as
// dynamodb://table?region=…&endpoint=….
func DynamoDB(t testing.TB) *DynamoDBServer {
	t.Helper()
	return sharedDynamoDB.get(t, "DynamoDB Local", func() (*DynamoDBServer, func() error, error) {
		if given := os.Getenv("ASHLAR_TEST_DYNAMODB_URL"); given != "" {
			u, err := url.Parse(given)
			if err != nil || u.Scheme != "dynamodb" || u.Host == "" {
				return nil, nil, fmt.Errorf("ASHLAR_TEST_DYNAMODB_URL is not of the form dynamodb://table?region=…")
			}
			q := u.Query()
			s := &DynamoDBServer{Container: &Container{}, Table: u.Host, Endpoint: q.Get("endpoint"), Region: q.Get("region")}
			q.Del("endpoint")
			q.Del("region")
			s.params = q
			if s.Endpoint != "" {
				emulatorCredentials()
			}
			return s, nil, nil
		}
		c, err := run(context.Background(), dynamoSpec())
		if err != nil {
			return nil, nil, err
		}
		emulatorCredentials()
		return dynamoServer(c), c.remove, nil
	})
}

// StartDynamoDB starts a DynamoDB Local for one test.
func StartDynamoDB(t testing.TB) *DynamoDBServer {
	t.Helper()
	c := start(t, dynamoSpec())
	emulatorCredentials()
	return dynamoServer(c)
}

func dynamoServer(c *Container) *DynamoDBServer {
	return &DynamoDBServer{
		Container: c, Endpoint: "http://" + c.Addr, Region: "us-east-1", Table: "ashlar-" + unique(),
		params: url.Values{"fence-wait": {"4s"}}, // no request is delayed for a quarter of an hour
	}
}

func dynamoSpec() spec {
	return spec{
		name: "DynamoDB Local", image: images.DynamoDB(), port: 8000, wait: true,
		// Most containers live for a minute or two, in which the optimising compiler and the parallel collector cost more than they save.
		cmd: []string{
			"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
			"-jar", "DynamoDBLocal.jar", "-inMemory", "-sharedDb", "-disableTelemetry", "-port", "8000",
		},
		ready: func(ctx context.Context, addr string) error {
			// A server that is ready refuses a request without a signature.
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/", nil)
			if err != nil {
				return err
			}
			tr := &http.Transport{DisableKeepAlives: true}
			defer tr.CloseIdleConnections()
			resp, err := (&http.Client{Transport: tr}).Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				return err
			}
			if !strings.Contains(string(body), "dynamodb") {
				return fmt.Errorf("status %s: %.100s", resp.Status, body)
			}
			return nil
		},
	}
}

// emulatorCredentials sets dummy credentials if the environment has none: the emulator requires a signature but does not check it.
// They are set for the process and never part of a URL.
func emulatorCredentials() {
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "emulator", "AWS_SECRET_ACCESS_KEY": "emulator", "AWS_EC2_METADATA_DISABLED": "true",
	} {
		if os.Getenv(name) == "" {
			_ = os.Setenv(name, value)
		}
	}
}

// Prefix returns a store prefix in the shared table that no other test uses.
func (s *DynamoDBServer) Prefix(t testing.TB) string {
	t.Helper()
	return "t-" + unique()
}

// StoreURL returns the URL of an empty store: a prefix of its own in the shared table. params are further parameters, as
// "name=value".
func (s *DynamoDBServer) StoreURL(t testing.TB, params ...string) string {
	t.Helper()
	return s.StoreURLIn(t, s.Prefix(t), params...)
}

// StoreURLIn returns the URL of the store with a prefix.
func (s *DynamoDBServer) StoreURLIn(t testing.TB, prefix string, params ...string) string {
	t.Helper()
	q := url.Values{}
	for name, values := range s.params {
		q[name] = values
	}
	if s.Region != "" {
		q.Set("region", s.Region)
	}
	if s.Endpoint != "" {
		q.Set("endpoint", s.Endpoint)
	}
	u := url.URL{Scheme: "dynamodb", Host: s.Table, Path: "/" + prefix, RawQuery: q.Encode()}
	return withParams(t, u.String(), params...)
}
