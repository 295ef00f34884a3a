// Command scheduler is a small orchestrator on package tables: services want tasks, tasks are assigned to nodes, and the tasks of
// failed nodes are assigned again. Any number of these programs share a store, and each may be killed at any moment. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"strings"

	"github.com/ashlar-dev/storage"
	_ "github.com/ashlar-dev/storage/inmem"
	_ "github.com/ashlar-dev/storage/postgres"
	_ "github.com/ashlar-dev/storage/sqlite"
	"github.com/ashlar-dev/storage/typed"
	"github.com/ashlar-dev/storage/typed/tables"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil && !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
}

// command executes one command line: run, nodes N, down PREFIX, up PREFIX, service NAME N, or show.
func command(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("scheduler", flag.ContinueOnError)
	url := flags.String("store", "sqlite:scheduler.db", "the `URL` of the store")
	if err := flags.Parse(args); err != nil {
		return err
	}
	b, err := storage.Open(ctx, *url)
	if err != nil {
		return err
	}
	defer b.Close()
	s, err := open(ctx, b)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	args = append(flags.Args(), "", "", "")
	switch count, _ := strconv.Atoi(args[1]); args[0] {
	case "run":
		return run(ctx, s)
	case "nodes":
		return addNodes(ctx, s, count)
	case "down", "up":
		return markNodes(ctx, s, args[1], args[0] == "down")
	case "service":
		replicas, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		return setService(ctx, s, args[1], replicas)
	case "show":
		return show(ctx, s)
	}
	return errors.New("usage: scheduler [-store URL] run | nodes N | down PREFIX | up PREFIX | service NAME N | show")
}

// addNodes creates nodes.
func addNodes(ctx context.Context, s *tables.Store, count int) error {
	return s.Batch(ctx, func(b *tables.Batch) error {
		for i := range count {
			if err := b.Update(func(tx *tables.Tx) error {
				id := nodes.ID(cluster, fmt.Sprintf("node-%03d", i))
				if _, err := nodes.Get(tx, id); !errors.Is(err, storage.ErrNotFound) {
					return err
				}
				return nodes.Put(tx, &typed.Object[Node]{ID: id, Data: Node{Capacity: 100}})
			}); err != nil {
				return err
			}
		}
		return nil
	})
}

// markNodes marks all nodes with a name prefix as down, or as up.
func markNodes(ctx context.Context, s *tables.Store, prefix string, down bool) error {
	var names []string
	if err := s.View(ctx, func(v *tables.View) error {
		all, err := nodes.List(v, nodeState.Is(!down), tables.NamePrefix(prefix))
		for _, node := range all {
			names = append(names, node.ID.Name)
		}
		return err
	}); err != nil {
		return err
	}
	return s.Batch(ctx, func(b *tables.Batch) error {
		for _, name := range names {
			if err := b.Update(func(tx *tables.Tx) error {
				node, err := nodes.Edit(tx, nodes.ID(cluster, name))
				if err != nil {
					return err
				}
				node.Data.Down = down
				return nodes.Put(tx, node)
			}); err != nil {
				return err
			}
		}
		return nil
	})
}

// setService sets how many tasks a service wants.
func setService(ctx context.Context, s *tables.Store, name string, replicas int) error {
	return s.Update(ctx, func(tx *tables.Tx) error {
		id := services.ID(cluster, name)
		service, err := services.Edit(tx, id)
		if errors.Is(err, storage.ErrNotFound) {
			return services.Put(tx, &typed.Object[Service]{ID: id, Data: Service{Replicas: replicas}})
		}
		if err != nil {
			return err
		}
		service.Data.Replicas = replicas
		return services.Put(tx, service)
	})
}

// show prints the tasks of each node.
func show(ctx context.Context, s *tables.Store) error {
	return s.View(ctx, func(v *tables.View) error {
		all, err := nodes.List(v)
		for _, node := range all {
			on, err := tasks.List(v, taskNode.Is(node.ID.Name))
			if err != nil {
				return err
			}
			names := make([]string, len(on))
			for i, task := range on {
				names[i] = task.ID.Name
			}
			fmt.Printf("%s down=%v %d tasks: %s\n", node.ID.Name, node.Data.Down, node.Data.Tasks, strings.Join(names, " "))
		}
		return err
	})
}
