package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// A failure is an error as the body of an answer, and as the last line of a stream.
type failure struct {
	// Code is the HTTP status code.
	Code int `json:"code"`
	// Status is the gRPC code.
	Status string `json:"status"`
	// Reason names the error for programs, where the service has a name for it.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message"`
}

func (f *failure) Error() string { return f.Message }

// statusClientClosed is the code of answers that nobody waits for.
const statusClientClosed = 499

// statusCodes are the gRPC codes in HTTP's terms. A code that is not among them is an internal error.
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

// refusalStatus are the gRPC codes of errors that the mapping finds itself.
var refusalStatus = map[int]string{
	http.StatusBadRequest:            "INVALID_ARGUMENT",
	http.StatusUnauthorized:          "UNAUTHENTICATED",
	http.StatusNotFound:              "NOT_FOUND",
	http.StatusMethodNotAllowed:      "UNIMPLEMENTED",
	http.StatusRequestEntityTooLarge: "RESOURCE_EXHAUSTED",
	http.StatusUnsupportedMediaType:  "INVALID_ARGUMENT",
}

// refuse is an error of a request that is wrong as HTTP.
func refuse(code int, format string, args ...any) error {
	return &failure{Code: code, Status: refusalStatus[code], Message: strings.ToValidUTF8(fmt.Sprintf(format, args...), "\uFFFD")}
}

// failureOf returns an error of the service, or of this package, as it is told.
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
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			f.Reason = info.GetReason()
		}
	}
	return f
}

// fail answers with an error.
func fail(w http.ResponseWriter, err error) {
	f := failureOf(err)
	if f.Code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(f.Code)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	_ = enc.Encode(map[string]*failure{"error": f}) // whoever asked may be gone
}

// notAllowed refuses a method that a path does not have.
func notAllowed(w http.ResponseWriter, method string, operations map[string]operation) error {
	allowed := slices.Collect(maps.Keys(operations))
	if slices.Contains(allowed, http.MethodGet) {
		allowed = append(allowed, http.MethodHead)
	}
	slices.Sort(allowed)
	list := strings.Join(allowed, ", ")
	w.Header().Set("Allow", list)
	return refuse(http.StatusMethodNotAllowed, "the method %.20q is not one of %s", method, list)
}
