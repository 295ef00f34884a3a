package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
	"github.com/ashlar-dev/storage/typed/tables"
)

// Node is a machine that runs tasks.
type Node struct {
	Down     bool `json:"down,omitempty"`
	Capacity int  `json:"room"`  // maximum number of tasks
	Tasks    int  `json:"tasks"` // number of assigned tasks: written with each assignment, in the same transaction
}

// Service is a number of wanted tasks.
type Service struct {
	Replicas int `json:"replicas"`
}

// Task is one replica of a service.
type Task struct {
	Service string `json:"service"`
	Node    string `json:"node"` // "" without an assignment
}

// The tables, and the indexes that the scheduler uses.
var (
	nodeState = tables.Index[Node, bool]{Name: "down", Values: func(n *typed.Object[Node]) []bool { return []bool{n.Data.Down} }}
	nodes     = tables.NewJSONTable[Node](kind("Node"), nodeState)

	services = tables.NewJSONTable[Service](kind("Service"))

	taskNode    = tables.Index[Task, string]{Name: "node", Values: func(t *typed.Object[Task]) []string { return []string{t.Data.Node} }}
	taskService = tables.Index[Task, string]{Name: "service", Values: func(t *typed.Object[Task]) []string { return []string{t.Data.Service} }}
	tasks       = tables.NewJSONTable[Task](kind("Task"), taskNode, taskService)

	cluster = &resourcepb.Tenancy{Partition: "default", Namespace: "default"}
)

func kind(name string) *resourcepb.Type {
	return &resourcepb.Type{Group: "scheduler", GroupVersion: "v1", Kind: name}
}

// open opens the store of a cluster.
func open(ctx context.Context, b storage.Backend) (*tables.Store, error) {
	return tables.Open(ctx, b, nodes, services, tasks)
}

// run schedules until ctx ends. Any number of processes do so concurrently, and each may end at any moment: the pending work is
// always found in the store, and every step is a transaction that checks whether it is still necessary.
func run(ctx context.Context, s *tables.Store) error {
	for {
		watch, err := s.ViewAndWatch(ctx, nil)
		if err != nil {
			return err
		}
		err = follow(ctx, s, watch)
		watch.Close()
		if !errors.Is(err, storage.ErrWatchClosed) || errors.Is(err, storage.ErrClosed) {
			return err
		}
	}
}

// follow does the pending work, and repeats that after every commit.
func follow(ctx context.Context, s *tables.Store, watch *tables.Watch) error {
	for {
		if err := reconcile(ctx, s); err != nil {
			return err
		}
		for more := true; more; {
			ev, err := watch.Next(ctx)
			if err != nil {
				return err
			}
			more = ev.More
		}
	}
}

// reconcile adjusts the tasks to the wanted ones. The database may be unavailable, or lose an answer: the next round, which follows
// at once, finds unfinished work again.
func reconcile(ctx context.Context, s *tables.Store) error {
	for {
		err := errors.Join(replicate(ctx, s), evacuate(ctx, s), assign(ctx, s))
		if err == nil || ctx.Err() != nil || errors.Is(err, storage.ErrClosed) {
			return errors.Join(err, ctx.Err())
		}
		// A linearizable read waits until the database answers.
		_ = s.View(ctx, func(*tables.View) error { return nil }, tables.Linearizable)
	}
}

// replicate creates missing tasks of services, and deletes superfluous ones.
func replicate(ctx context.Context, s *tables.Store) error {
	var create, drop []*resourcepb.ID
	if err := s.View(ctx, func(v *tables.View) error {
		all, err := services.List(v)
		for _, service := range all {
			have, err := tasks.List(v, taskService.Is(service.ID.Name))
			if err != nil {
				return err
			}
			wanted := map[string]bool{}
			for slot := range service.Data.Replicas {
				wanted[fmt.Sprintf("%s-%04d", service.ID.Name, slot)] = true
			}
			for _, task := range have {
				if !wanted[task.ID.Name] {
					drop = append(drop, task.ID)
				}
				delete(wanted, task.ID.Name)
			}
			for name := range wanted {
				create = append(create, tasks.ID(cluster, name))
			}
		}
		return err
	}); err != nil {
		return err
	}
	return s.Batch(ctx, func(b *tables.Batch) error {
		for _, id := range create {
			if err := b.Update(func(tx *tables.Tx) error { return createTask(tx, id) }); err != nil {
				return err
			}
		}
		for _, id := range drop {
			if err := b.Update(func(tx *tables.Tx) error { return dropTask(tx, id) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// serviceOf returns a task's service and slot, from its name.
func serviceOf(task *resourcepb.ID) (name string, slot int) {
	at := strings.LastIndexByte(task.Name, '-')
	_, _ = fmt.Sscanf(task.Name[at+1:], "%d", &slot)
	return task.Name[:at], slot
}

// serviceNeeds reports whether a service needs the task.
func serviceNeeds(tx *tables.Tx, task *resourcepb.ID) (bool, error) {
	name, slot := serviceOf(task)
	service, err := services.Get(tx, services.ID(cluster, name))
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	return err == nil && slot < service.Data.Replicas, err
}

func createTask(tx *tables.Tx, id *resourcepb.ID) error {
	ok, err := serviceNeeds(tx, id)
	if err != nil || !ok {
		return err
	}
	if _, err := tasks.Get(tx, id); !errors.Is(err, storage.ErrNotFound) {
		return err // another process was faster
	}
	service, _ := serviceOf(id)
	return tasks.Put(tx, &typed.Object[Task]{ID: id, Data: Task{Service: service}})
}

func dropTask(tx *tables.Tx, id *resourcepb.ID) error {
	ok, err := serviceNeeds(tx, id)
	if err != nil || ok {
		return err
	}
	task, err := tasks.Get(tx, id)
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(release(tx, task.Data.Node), tasks.Delete(tx, id))
}

// release subtracts a task from a node's count.
func release(tx *tables.Tx, node string) error {
	if node == "" {
		return nil
	}
	n, err := nodes.Edit(tx, nodes.ID(cluster, node))
	if err != nil {
		return err
	}
	n.Data.Tasks--
	return nodes.Put(tx, n)
}

// evacuate removes the tasks from nodes that are down.
func evacuate(ctx context.Context, s *tables.Store) error {
	var stranded []*resourcepb.ID
	if err := s.View(ctx, func(v *tables.View) error {
		down, err := nodes.List(v, nodeState.Is(true))
		for _, node := range down {
			on, err := tasks.List(v, taskNode.Is(node.ID.Name))
			if err != nil {
				return err
			}
			for _, task := range on {
				stranded = append(stranded, task.ID)
			}
		}
		return err
	}); err != nil {
		return err
	}
	return s.Batch(ctx, func(b *tables.Batch) error {
		for _, id := range stranded {
			if err := b.Update(func(tx *tables.Tx) error { return evacuateTask(tx, id) }); err != nil {
				return err
			}
		}
		return nil
	})
}

func evacuateTask(tx *tables.Tx, id *resourcepb.ID) error {
	task, err := tasks.Edit(tx, id)
	if errors.Is(err, storage.ErrNotFound) || err == nil && task.Data.Node == "" {
		return nil
	}
	if err != nil {
		return err
	}
	node, err := nodes.Get(tx, nodes.ID(cluster, task.Data.Node))
	if err != nil || !node.Data.Down {
		return err // it is up again
	}
	if err := release(tx, task.Data.Node); err != nil {
		return err
	}
	task.Data.Node = ""
	return tasks.Put(tx, task)
}

// assign assigns each task without a node to the node with the fewest tasks that is up and has room.
func assign(ctx context.Context, s *tables.Store) error {
	var waiting []*resourcepb.ID
	if err := s.View(ctx, func(v *tables.View) error {
		all, err := tasks.List(v, taskNode.Is(""))
		for _, task := range all {
			waiting = append(waiting, task.ID)
		}
		return err
	}); err != nil {
		return err
	}
	return s.Batch(ctx, func(b *tables.Batch) error {
		for _, id := range waiting {
			if err := b.Update(func(tx *tables.Tx) error { return assignTask(tx, id) }); err != nil {
				return err
			}
		}
		return nil
	})
}

func assignTask(tx *tables.Tx, id *resourcepb.ID) error {
	task, err := tasks.Edit(tx, id)
	if errors.Is(err, storage.ErrNotFound) || err == nil && task.Data.Node != "" {
		return nil
	}
	if err != nil {
		return err
	}
	// The list only selects a node to try, so the other nodes may change meanwhile. The selected node itself is written.
	up, err := nodes.List(tx.UncheckedReader(), nodeState.Is(false))
	up = slices.DeleteFunc(up, func(n *typed.Object[Node]) bool { return n.Data.Tasks >= n.Data.Capacity })
	if err != nil || len(up) == 0 {
		return err
	}
	emptiest := slices.MinFunc(up, func(a, b *typed.Object[Node]) int { return a.Data.Tasks - b.Data.Tasks })
	node, err := nodes.Edit(tx, emptiest.ID)
	if err != nil {
		return err
	}
	node.Data.Tasks++
	task.Data.Node = node.ID.Name
	return errors.Join(nodes.Put(tx, node), tasks.Put(tx, task))
}
