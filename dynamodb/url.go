package dynamodb

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	awsretry "github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/logging"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
	"github.com/ashlar-dev/storage/internal/dial"
	"github.com/ashlar-dev/storage/internal/params"
	"github.com/ashlar-dev/storage/internal/scratchstore"
	"github.com/ashlar-dev/storage/telemetry"
)

// settings are the connection settings of a URL.
type settings struct {
	region, endpoint, profile, roleARN string
	fips                               bool
}

func parseURL(u *url.URL) (*Options, *settings, error) {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", storage.ErrInvalid, fmt.Sprintf(format, args...))
	}
	if u.User != nil {
		return nil, nil, invalid("a dynamodb URL contains no user or keys: set them in the environment, a profile or a role")
	}
	if u.Opaque != "" || u.Host == "" || u.Port() != "" {
		return nil, nil, invalid("expected dynamodb://table or dynamodb://table/prefix")
	}
	v := params.Parse(u)
	opts := &Options{
		Table:               u.Host,
		Prefix:              strings.TrimPrefix(u.Path, "/"),
		NoCreate:            !v.OnOff("create", true),
		Buckets:             v.Int("buckets", 0, 1, maxBuckets),
		PointInTimeRecovery: v.OnOff("pitr", false),
		Timeout:             v.Duration("timeout", 30*time.Second),
		MaxSize:             v.Int("max-size", 0, 1, driver.MaxSize),
		Outage:              v.Duration("outage", 5*time.Minute),
		Poll:                v.Duration("poll", 200*time.Millisecond),
		IdlePoll:            v.Duration("idle-poll", 2*time.Second),
		FenceWait:           v.Duration("fence-wait", 16*time.Minute),
		Telemetry:           telemetry.Options{Logger: v.Logger()},
	}
	s := &settings{
		region: v.String("region", ""), endpoint: v.String("endpoint", ""), profile: v.String("profile", ""),
		roleARN: v.String("role-arn", ""), fips: v.OnOff("fips", false),
	}
	relay := RelayOptions{
		Listen: v.String("relay-listen", ""), Advertise: v.String("relay-advertise", ""), Cert: v.String("relay-cert", ""),
		Key: v.String("relay-key", ""), CA: v.String("relay-ca", ""), TokenFile: v.String("relay-token-file", ""),
		TTL: v.Duration("relay-ttl", 15*time.Second),
	}
	watch := v.String("watch", "direct")
	tags := v.String("tags", "")
	if err := v.Err(); err != nil {
		return nil, nil, err
	}
	switch {
	case watch == "relay":
		opts.Relay = &relay
	case watch != "direct":
		return nil, nil, invalid("URL parameter watch: expected direct or relay")
	case relay != RelayOptions{TTL: relay.TTL}:
		return nil, nil, invalid("the URL parameters of a relay need watch=relay")
	}
	if tags != "" {
		opts.Tags = map[string]string{}
		for _, tag := range strings.Split(tags, ",") {
			name, value, ok := strings.Cut(tag, ":")
			if !ok || name == "" {
				return nil, nil, invalid("URL parameter tags: expected name:value,name:value")
			}
			opts.Tags[name] = value
		}
	}
	if s.endpoint != "" {
		e, err := url.Parse(s.endpoint)
		if err != nil || e.Scheme != "http" && e.Scheme != "https" || e.Host == "" || e.User != nil {
			return nil, nil, invalid("URL parameter endpoint: expected http://host:port or https://host")
		}
	}
	_, err := opts.withDefaults()
	return opts, s, err
}

func (s *settings) apply(endpoint **string) {
	if s.endpoint != "" {
		*endpoint = &s.endpoint
	}
}

// load finds region and credentials in the standard sources of AWS tools, and creates the HTTP client. The client keeps many
// connections, because each concurrent request needs one for itself.
func (s *settings) load(ctx context.Context) (aws.Config, *http.Transport, error) {
	client := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConns, t.MaxIdleConnsPerHost = 512, 256
		t.IdleConnTimeout = 60 * time.Second
		t.ResponseHeaderTimeout = 15 * time.Second
		t.ExpectContinueTimeout = 0
		if f := dial.From(ctx); f != nil {
			t.DialContext = f
		}
	})
	options := []func(*config.LoadOptions) error{
		config.WithHTTPClient(client), // adds the certificates of AWS_CA_BUNDLE
		// Without this, the SDK logs a warning to standard error for each cancelled request, such as the stream's at Close.
		config.WithLogger(logging.Nop{}),
		// The retryer has no state that requests share, because throttled reads of the stream must not slow down writes. Each call backs
		// off by itself. After the SDK's last attempt the backend itself continues, within the caller's deadline.
		config.WithRetryer(func() aws.Retryer {
			return awsretry.NewStandard(func(o *awsretry.StandardOptions) {
				o.MaxAttempts, o.MaxBackoff, o.RateLimiter = 3, 2*time.Second, ratelimit.None
			})
		}),
	}
	if s.region != "" {
		options = append(options, config.WithRegion(s.region))
	}
	if s.profile != "" {
		options = append(options, config.WithSharedConfigProfile(s.profile))
	}
	if s.fips {
		options = append(options, config.WithUseFIPSEndpoint(aws.FIPSEndpointStateEnabled))
	}
	if s.emulator() {
		options = append(options, config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider("emulator", "emulator", "")))
	}
	cfg, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return cfg, nil, fmt.Errorf("load the AWS configuration: %w", err)
	}
	transport := client.GetTransport()
	if built, ok := cfg.HTTPClient.(*awshttp.BuildableClient); ok {
		transport = built.GetTransport()
	}
	cfg.HTTPClient = &http.Client{
		Transport:     transport, // closed with the backend
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if cfg.Region == "" {
		if !s.emulator() {
			return cfg, nil, fmt.Errorf("%w: no AWS region: expected URL parameter region, AWS_REGION, or a region in the profile", storage.ErrInvalid)
		}
		cfg.Region = "us-east-1"
	}
	if s.roleARN != "" {
		role := stscreds.NewAssumeRoleProvider(sts.NewFromConfig(cfg), s.roleARN, func(o *stscreds.AssumeRoleOptions) { o.RoleSessionName = "ashlar" })
		cfg.Credentials = aws.NewCredentialsCache(role)
	}
	return cfg, transport, nil
}

// emulator reports whether requests go to an endpoint outside of AWS and no identity is configured. An emulator requires signed
// requests but accepts any identity.
func (s *settings) emulator() bool {
	if !strings.HasPrefix(s.endpoint, "http://") || s.profile != "" || s.roleARN != "" {
		return false
	}
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_ROLE_ARN", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"} {
		if os.Getenv(name) != "" {
			return false
		}
	}
	return true
}

func init() { scratchstore.Register(newScratch, "dynamodb") }

// newScratch returns the name of a scratch table, which has a prefix for each store.
func newScratch(u *url.URL, name string) (*scratchstore.Space, error) {
	store := func(number int) *url.URL {
		other := *u
		query := other.Query()
		query.Del("create")
		other.Host, other.Path, other.RawPath, other.RawQuery = u.Host+"_"+name, fmt.Sprint("/", number), "", query.Encode()
		return &other
	}
	if _, _, err := parseURL(u); err != nil {
		return nil, err
	}
	opts, s, err := parseURL(store(0))
	if err != nil {
		return nil, err // the name of the table is too long
	}
	return &scratchstore.Space{
		Location: "the table " + opts.Table,
		Store:    store,
		Drop: func(ctx context.Context) error {
			cfg, transport, err := s.load(ctx)
			if err != nil {
				return err
			}
			defer transport.CloseIdleConnections()
			db := dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) { s.apply(&o.BaseEndpoint) })
			_, err = db.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &opts.Table})
			if request.HasCode(err, "ResourceNotFoundException") {
				return nil
			}
			return err
		},
		// Requests contain key names in encoded form, but the operation in plain text.
		Requests: []string{
			"DynamoDB_20120810.TransactWriteItems", "DynamoDB_20120810.PutItem", "DynamoDB_20120810.UpdateItem",
			"DynamoDB_20120810.DeleteItem", "DynamoDB_20120810.GetItem",
		},
	}, nil
}
