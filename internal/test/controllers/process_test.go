package controllers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/internal/freeze"
	"github.com/ashlar-dev/storage/internal/leaks"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// processEnv is set to the URL of the store in the environment of a process that runs controllers.
const processEnv = "ASHLAR_CONTROLLERS_PROCESS"

// serveProcess runs controllers, if a test has started the program for this, and then ends the program.
func serveProcess() {
	url := os.Getenv(processEnv)
	if url == "" {
		return
	}
	if err := runProcess(url); err != nil {
		fmt.Fprintln(os.Stderr, "controllers:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// runProcess runs the controllers until the standard input ends.
func runProcess(url string) (err error) {
	before, err := leaks.IgnoreCurrent()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	backend, err := storage.Open(ctx, url)
	for ; err != nil; backend, err = storage.Open(ctx, url) { // the database may be down
		if ctx.Err() != nil {
			return nil
		}
		pause(ctx, 50*time.Millisecond)
	}
	m := controller.NewManager(service.New(backend, registry.NewOpen(registry.Type{}), nil).Client(), &controller.Options{
		Leases: backend, LeaseTTL: leaseTTL, Logger: slog.New(slog.DiscardHandler),
	})
	if err := m.Register(controllers()...); err != nil {
		return err
	}
	if err := m.Run(ctx); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("Run returned %v, expected context.Canceled", err)
	}
	if err := backend.Close(); err != nil {
		return err
	}
	return leaks.AwaitNone(30*time.Second, before)
}

// leaseTTL is short, so that leases move often, but a machine that runs other tests as well can renew a lease in time.
const leaseTTL = 3 * time.Second

// process is a process that runs controllers.
type process struct {
	url   string
	cmd   *exec.Cmd
	stdin io.Closer
}

// start starts the process.
func (p *process) start(t testing.TB) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	p.cmd = exec.Command(program)
	p.cmd.Env = append(os.Environ(), processEnv+"="+p.url)
	p.cmd.Stderr = t.Output()
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	return p.cmd.Start()
}

// kill ends the process at once.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // reports the signal
	_ = p.stdin.Close()
}

// stop ends the process in order. It returns an error if the process reports one.
func (p *process) stop() error {
	_ = p.stdin.Close()
	late := time.AfterFunc(maxWait, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	return p.cmd.Wait()
}

func (p *process) freeze() error { return freeze.Stop(p.cmd.Process) }

func (p *process) wake() error { return freeze.Wake(p.cmd.Process) }
