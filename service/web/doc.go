// Package web is the resource service over HTTP and JSON, for curl, scripts and browsers. It calls the service by a client, of the same
// process or of another one, so that hooks, authorization and errors are the same as over gRPC.
//
//	server := service.New(backend, types, nil)
//	http.Handle("/api/", http.StripPrefix("/api", web.NewHandler(server.Client(), types, nil)))
//
// A type has the path /group/version/kind, with the kind in lower case:
//
//	GET    /catalog/v1/service                   the resources of the type: {"resources":[…]}
//	GET    /catalog/v1/service?watch             the same, and every change to them: one event on a line
//	GET    /catalog/v1/service/api               one resource
//	PUT    /catalog/v1/service/api               create it or update it; the body is {"metadata":{…},"owner":{…},"data":{…}}
//	DELETE /catalog/v1/service/api               delete it
//	GET    /catalog/v1/service/api/owned         the resources that it owns, of any type
//	PUT    /catalog/v1/service/api/status/KEY    write one of its statuses
//	GET    /openapi.json                         all of this in detail, as an OpenAPI document
//
// # Resources
//
// Resources are protojson. The payload, data, has the fields of the type's message, and no @type. A payload that JSON cannot show, because
// it has fields that the program does not know, is shown by its bytes, as {"@type":"…","@value":"base64"}, and is taken in that form too, so
// that nothing is lost on a way out and back. With an open registry the kind in a path is in camel case, and data has @type.
//
// A body may be what GET has answered, edited: its id has to agree with the path, and its version makes the write conditional, as the query
// parameter version does. Fields that do not exist are refused.
//
// # Queries
//
// partition, and namespace or ns, say where; without them both are "default". Listings take name_prefix, and limit and continue for pages.
// consistent, or RequireConsistent, asks for an answer that shows every acknowledged write. A parameter that an operation does not know, or
// that is there twice, is refused: a misspelt version must not delete unconditionally. The token is in the header x-consul-token, or in
// Authorization as a bearer token.
//
// # Errors
//
// An error has a status code and a body, which scripts tell apart by status and reason:
//
//	{"error": {"code": 409, "status": "ABORTED", "reason": "CAS_FAILURE", "message": "CAS operation failed because …"}}
//
// # Watches
//
// A watch is a stream of lines, each an event: {"upsert":{"resource":{…}}}, {"delete":{"resource":{…}}}, {"endOfSnapshot":{}} between what
// was there and what changes, and {"bookmark":{"cursor":"…"}} every so many seconds if bookmark asks for it. Changes carry a cursor, by which
// another watch goes on after them. "more" says that the next event is of the same commit. A stream that the server ends has {"error":{…}} in
// its last line; one without it was cut off. A client that does not read holds up nobody: it is left behind, and goes on from the store's
// history, or is disconnected.
package web
