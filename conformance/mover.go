package conformance

// moverCases test the parts of a driver for migrations: driver.Mover, and driver.GuardedMover, driver.BulkReader and
// driver.Loader if the backend has them.
var moverCases = topic{"Mover", []testCase{
	{name: "Notes", needs: needMover | needAnother, run: moverNotes},
	{name: "NoteLimits", needs: needMover | needAnother, run: moverNoteLimits},
	{name: "NotesAndFenceAreHidden", needs: needMover | needAnother, run: moverHidden},
	{name: "FenceRefusesWrites", needs: needMover | needAnother, run: fenceRefuses},
	{name: "FenceOpens", needs: needMover | needAnother, run: fenceOpens},
	{name: "FenceUnderLoad", needs: needMover | needAnother, run: fenceWithWriters},
	{name: "Epochs", needs: needGuards | needAnother, run: guardEpochs},
	{name: "Guards", needs: needGuards | needAnother, run: guardWrites},
	{name: "GuardedLoads", needs: needGuards | needLoader | needAnother, run: guardLoads},
	{name: "BulkReads", needs: needBulkReader | needAnother, run: bulkReads},
	{name: "LoadContent", needs: needLoader | needAnother, run: loadContent},
	{name: "LoadAllOrNothing", needs: needLoader | needAnother, run: loadAllOrNothing},
	{name: "LoadWatched", needs: needLoader | needAnother, run: loadWatched},
}}
