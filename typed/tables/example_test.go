package tables_test

import (
	"context"
	"fmt"
	"log"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
	"github.com/ashlar-dev/storage/typed/tables"
)

// Job is the payload in the examples.
type Job struct {
	Worker string `json:"worker"`
}

var (
	byWorker = tables.Index[Job, string]{Name: "worker", Values: func(j *typed.Object[Job]) []string { return []string{j.Data.Worker} }}
	jobs     = tables.NewJSONTable[Job](&resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Job"}, byWorker)
	office   = &resourcepb.Tenancy{Partition: "default", Namespace: "office"}
)

func Example() {
	ctx := context.Background()
	backend, err := storage.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	s, err := tables.Open(ctx, backend, jobs)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	if err := s.Update(ctx, func(tx *tables.Tx) error {
		for _, name := range []string{"copy", "file", "post"} {
			if err := jobs.Put(tx, &typed.Object[Job]{ID: jobs.ID(office, name)}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		log.Fatal(err)
	}
	// Take the first free job. Two programs that do this concurrently get two different jobs.
	if err := s.Update(ctx, func(tx *tables.Tx) error {
		free, err := jobs.List(tx.UncheckedReader(), byWorker.Is(""))
		if err != nil || len(free) == 0 {
			return err
		}
		job, err := jobs.Edit(tx, free[0].ID)
		if err != nil {
			return err
		}
		job.Data.Worker = "ada"
		return jobs.Put(tx, job)
	}); err != nil {
		log.Fatal(err)
	}
	if err := s.View(ctx, func(v *tables.View) error {
		free, err := jobs.List(v, byWorker.Is(""))
		for _, job := range free {
			fmt.Println(job.ID.Name, "is free")
		}
		return err
	}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// file is free
	// post is free
}

func ExampleStore_ViewAndWatch() {
	ctx := context.Background()
	backend, err := storage.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	s, err := tables.Open(ctx, backend, jobs)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	watch, err := s.ViewAndWatch(ctx, func(v *tables.View) error {
		all, err := jobs.List(v)
		fmt.Println(len(all), "jobs")
		return err
	}, jobs.Where(byWorker.Is("ada")))
	if err != nil {
		log.Fatal(err)
	}
	defer watch.Close()
	for _, worker := range []string{"ada", "bob"} {
		if err := s.Update(ctx, func(tx *tables.Tx) error {
			job := &typed.Object[Job]{ID: jobs.ID(office, "copy")}
			if stored, err := jobs.Edit(tx, job.ID); err == nil {
				job = stored
			}
			job.Data.Worker = worker
			return jobs.Put(tx, job)
		}); err != nil {
			log.Fatal(err)
		}
		ev, err := watch.Next(ctx)
		if err != nil {
			log.Fatal(err)
		}
		if change, ok := jobs.Event(ev); ok {
			fmt.Println("created:", change.Old == nil, "worker:", change.New.Data.Worker)
		}
	}
	// Output:
	// 0 jobs
	// created: true worker: ada
	// created: false worker: bob
}
