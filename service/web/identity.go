package web

import "time"

// Identity describes the caller of a request.
type Identity struct {
	// Name is the name of the caller, "" if the server does not identify its callers.
	Name string `json:"name"`
	// Expires is the time at which the token expires, nil if it does not.
	Expires *time.Time `json:"expires,omitempty"`
	// Rules are the permissions of the caller. Without any, an identified caller may do nothing.
	Rules []Rule `json:"rules"`
}

// Rule permits actions on types in tenancies.
type Rule struct {
	Types     []string `json:"types"`
	Partition string   `json:"partition"`
	Namespace string   `json:"namespace"`
	May       []string `json:"may"`
}
