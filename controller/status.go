package controller

import "time"

// Status describes a controller in this process, or one of its shards. The record of a process has it as JSON.
type Status struct {
	// Controller, Type and Placement describe the controller.
	Controller string `json:"controller"`
	Type       string `json:"type"`
	Placement  string `json:"placement"`
	// Shard is the number of the shard, of PlacementSharded.
	Shard int `json:"shard"`
	// Process is the name of the process.
	Process string `json:"process"`
	// Runs reports whether this process runs the controller: whether it holds the lease.
	Runs bool `json:"runs"`
	// Epoch is the number of the tenure, and Since its begin.
	Epoch int64     `json:"epoch"`
	Since time.Time `json:"since"`
	// Ready, Delayed and Running are the numbers of resources that wait for a reconcile, for a later one, or are being reconciled.
	Ready   int `json:"ready"`
	Delayed int `json:"delayed"`
	Running int `json:"running"`
	// Oldest is the time that the longest waiting resource has waited.
	Oldest time.Duration `json:"oldest"`
	// Reconciles and Errors are the numbers of reconciles, and of failed ones, of the controller since the process started.
	Reconciles int64 `json:"reconciles"`
	Errors     int64 `json:"errors"`
	// LastSuccess is the time of the last reconcile without an error; zero for none.
	LastSuccess time.Time `json:"lastSuccess"`
}
