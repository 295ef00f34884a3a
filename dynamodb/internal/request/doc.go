// Package request sends requests to AWS: again and again until their fate is known, signed by a clock that is AWS's own, and with
// errors in words for people.
//
// The SDK repeats a request by itself and says nothing of it. What a writer has to know is whether any attempt, also one of those,
// may have been carried out: Retry returns it beside the error.
//
// The package knows neither the table nor its stream; both are built on it.
package request
