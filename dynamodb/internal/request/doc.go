// Package request sends requests to AWS. It repeats them until their outcome is known, signs them by AWS's own clock, and
// simplifies error texts.
//
// The SDK repeats a request by itself without reporting it. A writer must know whether any attempt, including those, may have been
// applied: Retry returns this beside the error.
//
// The package depends on neither the table nor its stream; both use it.
package request
