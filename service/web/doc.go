// Package web serves the resource service over HTTP and JSON, for curl, scripts and browsers. It calls the service through a
// client, in the same process or another, so that hooks, authorization and errors are the same as over gRPC.
//
//	server := service.New(backend, types, nil)
//	http.Handle("/api/", http.StripPrefix("/api", web.NewHandler(server.Client(), types, nil)))
//
// The path of a type is /group/version/kind, with the kind in any case. Lists and watches accept /group/*/kind, /group/*/* and /*/*/*:
//
//	GET    /catalog/v1/service                   the resources of the type: {"resources":[…]}
//	GET    /catalog/v1/service?watch             the resources and their changes, an event a line
//	GET    /catalog/v1/service/api               read a resource
//	PUT    /catalog/v1/service/api               create or update a resource; the body is {"metadata":{…},"owner":{…},"data":{…}}
//	DELETE /catalog/v1/service/api               delete a resource
//	GET    /catalog/v1/service/api/owned         the owned resources, of any type
//	PUT    /catalog/v1/service/api/status/KEY    write a status of a resource
//	GET    /catalog/v1/service/api/history       the changes of a resource, one a line
//	GET    /catalog/v1/service?changes           the changes of the resources of the type, one a line
//	GET    /catalog/v1/service?diff&from=120     the resources that differ between two revisions, one a line
//	GET    /types, /revisions, /whoami           the types with counts, the oldest and the newest revision, the caller
//	GET    /openapi.json                         the OpenAPI document of these paths
//
// # Resources
//
// Resources are in protojson. The payload, data, has the fields of the type's message and no @type. If a payload has fields that the program does
// not know, JSON cannot represent it. Such a payload has the form {"@type":"…","@value":"base64"} with its bytes, which is accepted in bodies too,
// so that a round trip loses nothing. With an open registry the kind in a path is in camel case, unless Options.Kinds is set, and data has @type, or is a
// google.protobuf.Struct.
//
// A body may be an edited answer of GET: its id must agree with the path, and its version makes the write conditional, as the query parameter
// version does. Unknown fields are rejected.
//
// # Queries
//
// partition, and namespace or ns, select the tenancy; the default of both is "default". Listings accept name_prefix, and limit and continue for
// pages. consistent, or RequireConsistent, requests an answer that includes every acknowledged write. Parameters that the operation does not know,
// and repeated ones, are rejected: a misspelt version must not delete unconditionally. So are changes with a conditional header such as
// If-Match, because there are no entity tags. The token is in the header x-consul-token, or in
// Authorization as a bearer token.
//
// # Errors
//
// An error has a status code and a body. Scripts distinguish errors by status and reason:
//
//	{"error": {"code": 409, "status": "ABORTED", "reason": "CAS_FAILURE", "message": "CAS operation failed because …"}}
//
// # Watches
//
// A watch is a stream of lines, each an event: {"upsert":{"resource":{…}}}, {"delete":{"resource":{…}}}, {"endOfSnapshot":{}} between
// the snapshot and the changes, and {"bookmark":{"cursor":"…"}} at the interval that the parameter bookmark gives in seconds. Each
// change has a cursor: a watch from this cursor begins after the change. "more" means that the next event is of the same commit. A
// stream that the server ends has {"error":{…}} in its last line; a stream without that line was cut off. A client that does not read
// blocks no other client: it falls behind and continues from the store's history, or is disconnected.
package web
