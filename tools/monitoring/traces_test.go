package monitoring

import (
	"errors"
	"net"
	"net/http"
	"testing"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

// freeAddresses returns two loopback addresses without listeners.
func freeAddresses(t *testing.T) (first, second string) {
	t.Helper()
	one, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	two, err := net.Listen("tcp", "127.0.0.1:0") // one is still open, so that the ports differ
	if err = errors.Join(err, one.Close()); err == nil {
		err = two.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return one.Addr().String(), two.Addr().String()
}

// span is a span of a trace.
type span struct{ trace, parent, id, service string }

// spansByName returns the spans that a collector has received.
func spansByName(received *consumertest.TracesSink) map[string]span {
	spans := map[string]span{}
	for _, traces := range received.AllTraces() {
		for _, process := range traces.ResourceSpans().All() {
			service, _ := process.Resource().Attributes().Get("service.name")
			for _, scope := range process.ScopeSpans().All() {
				for _, s := range scope.Spans().All() {
					spans[s.Name()] = span{s.TraceID().String(), s.ParentSpanID().String(), s.SpanID().String(), service.AsString()}
				}
			}
		}
	}
	return spans
}

// A collector receives the traces of a server by each protocol of OTLP. The spans of the store belong to those of the requests.
func TestTraces(t *testing.T) {
	grpcAddress, httpAddress := freeAddresses(t)
	byProtocol := map[string]string{"grpc": grpcAddress, "http/protobuf": httpAddress}
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig()
	if err := confmap.NewFromStringMap(map[string]any{"protocols": map[string]any{
		"grpc": map[string]any{"endpoint": byProtocol["grpc"]}, "http": map[string]any{"endpoint": byProtocol["http/protobuf"]},
	}}).Unmarshal(config); err != nil {
		t.Fatal(err)
	}
	received := new(consumertest.TracesSink)
	collector, err := factory.CreateTraces(t.Context(), receivertest.NewNopSettings(factory.Type()), config, received)
	if err == nil {
		err = collector.Start(t.Context(), componenttest.NewNopHost())
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := collector.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	for protocol, address := range byProtocol {
		var spans map[string]span
		for range 5 { // a server that ends has one second to send the pending spans
			received.Reset()
			s := startServer(t, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+address, "OTEL_EXPORTER_OTLP_PROTOCOL="+protocol, "OTEL_SERVICE_NAME=shop")
			s.expect(http.StatusOK, http.MethodPut, "/api/demo/v1/Thing/a", token, `{}`)
			s.stop()
			if spans = spansByName(received); len(spans) > 0 {
				break
			}
		}
		request, write := spans["PUT /api/"], spans["write"]
		if request == (span{}) || write.trace != request.trace || write.parent != request.id || write.service != "shop" {
			t.Errorf("%s: the spans are %v", protocol, spans)
		}
	}
}
