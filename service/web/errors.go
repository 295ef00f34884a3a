package web

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// failure is an error as the body of an answer, and as the last line of a stream.
type failure struct {
	// Code is the HTTP status code.
	Code int `json:"code"`
	// Status is the gRPC code.
	Status string `json:"status"`
	// Reason is a machine-readable name of the error, if the service has one.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message"`
	// retryAfter is the number of seconds after which a retry may succeed, or 0.
	retryAfter int
}

func (f *failure) Error() string { return f.Message }

// statusClientClosed is the code of answers to clients that have disconnected.
const statusClientClosed = 499

// statusCodes maps gRPC codes to HTTP. Other codes are internal errors.
var statusCodes = map[codes.Code]struct {
	http   int
	status string
}{
	codes.Canceled:           {statusClientClosed, "CANCELLED"},
	codes.InvalidArgument:    {http.StatusBadRequest, "INVALID_ARGUMENT"},
	codes.Unauthenticated:    {http.StatusUnauthorized, "UNAUTHENTICATED"},
	codes.PermissionDenied:   {http.StatusForbidden, "PERMISSION_DENIED"},
	codes.NotFound:           {http.StatusNotFound, "NOT_FOUND"},
	codes.Aborted:            {http.StatusConflict, "ABORTED"},
	codes.AlreadyExists:      {http.StatusConflict, "ALREADY_EXISTS"},
	codes.OutOfRange:         {http.StatusGone, "OUT_OF_RANGE"},
	codes.FailedPrecondition: {http.StatusPreconditionFailed, "FAILED_PRECONDITION"},
	codes.ResourceExhausted:  {http.StatusRequestEntityTooLarge, "RESOURCE_EXHAUSTED"},
	codes.Internal:           {http.StatusInternalServerError, "INTERNAL"},
	codes.DataLoss:           {http.StatusInternalServerError, "DATA_LOSS"},
	codes.Unknown:            {http.StatusInternalServerError, "UNKNOWN"},
	codes.Unimplemented:      {http.StatusNotImplemented, "UNIMPLEMENTED"},
	codes.Unavailable:        {http.StatusServiceUnavailable, "UNAVAILABLE"},
	codes.DeadlineExceeded:   {http.StatusGatewayTimeout, "DEADLINE_EXCEEDED"},
}

// refusalStatus maps the HTTP codes of this package's own errors to gRPC codes.
var refusalStatus = map[int]string{
	http.StatusBadRequest:            "INVALID_ARGUMENT",
	http.StatusUnauthorized:          "UNAUTHENTICATED",
	http.StatusNotFound:              "NOT_FOUND",
	http.StatusMethodNotAllowed:      "UNIMPLEMENTED",
	http.StatusRequestTimeout:        "DEADLINE_EXCEEDED",
	http.StatusRequestEntityTooLarge: "RESOURCE_EXHAUSTED",
	http.StatusUnsupportedMediaType:  "INVALID_ARGUMENT",
	http.StatusUnprocessableEntity:   "INVALID_ARGUMENT",
}

// refuse is the error of a request that is invalid as HTTP.
func refuse(code int, format string, args ...any) error {
	return &failure{Code: code, Status: refusalStatus[code], Message: strings.ToValidUTF8(fmt.Sprintf(format, args...), "\uFFFD")}
}

// codesByReason are the HTTP codes of errors whose gRPC code is less exact. 400 is for requests that the document does not describe.
var codesByReason = map[string]int{
	"INVALID":                http.StatusUnprocessableEntity,
	"GROUP_VERSION_MISMATCH": http.StatusConflict,
	"CONVERSION":             http.StatusConflict,
}

// contradiction is the error of a request whose parts are valid, but not together. The document cannot express that.
func contradiction(format string, args ...any) error {
	return refuse(http.StatusUnprocessableEntity, format, args...)
}

// failureOf converts an error of the service, or of this package.
func failureOf(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	s := grpcstatus.Convert(err)
	meaning, ok := statusCodes[s.Code()]
	if !ok {
		meaning = statusCodes[codes.Internal]
	}
	f = &failure{Code: meaning.http, Status: meaning.status, Message: s.Message()}
	for _, detail := range s.Details() {
		switch info := detail.(type) {
		case *errdetails.ErrorInfo:
			f.Reason = info.GetReason()
			f.Code = cmp.Or(codesByReason[f.Reason], f.Code)
		case *errdetails.RetryInfo:
			f.Code, f.retryAfter = http.StatusTooManyRequests, int(math.Ceil(info.GetRetryDelay().AsDuration().Seconds()))
		}
	}
	return f
}

// fail writes an error.
func fail(w http.ResponseWriter, err error) {
	f := failureOf(err)
	if f.Code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if f.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(f.retryAfter))
	}
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(f.Code)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	_ = enc.Encode(map[string]*failure{"error": f}) // whoever asked may be gone
}

// notAllowed refuses a method that a path does not have.
func notAllowed(w http.ResponseWriter, method string, allowed []string) error {
	if slices.Contains(allowed, http.MethodGet) {
		allowed = append(allowed, http.MethodHead)
	}
	slices.Sort(allowed)
	list := strings.Join(allowed, ", ")
	w.Header().Set("Allow", list)
	return refuse(http.StatusMethodNotAllowed, "the method %.20q is not one of %s", method, list)
}
