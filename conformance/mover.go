package conformance

// moverCases test the parts of a backend that a migration needs: a driver.Mover and, if the backend has them, a driver.GuardedMover
// and a driver.Bulk. A driver.ColumnChecker is tested where there is one.
var moverCases = topic{"Mover", []testCase{
	{name: "Notes", needs: needMover | needAnother, run: moverNotes},
	{name: "NoteLimits", needs: needMover | needAnother, run: moverNoteLimits},
	{name: "NotesAndFenceAreHidden", needs: needMover | needAnother, run: moverHidden},
	{name: "FenceRefusesWrites", needs: needMover | needAnother, run: fenceRefuses},
	{name: "FenceOpens", needs: needMover | needAnother, run: fenceOpens},
	{name: "FenceUnderLoad", needs: needMover | needAnother, run: fenceWithWriters},
	{name: "Epochs", needs: needGuards | needAnother, run: guardEpochs},
	{name: "Guards", needs: needGuards | needAnother, run: guardWrites},
	{name: "GuardsUnderLoad", needs: needGuards | needAnother, run: guardWithWriters},
	{name: "FenceAdmits", needs: needGuards | needAnother, run: fenceAdmits},
	{name: "FenceAdmitsUnderLoad", needs: needGuards | needAnother, run: fenceAdmitsWithWriters},
	{name: "Moved", needs: needGuards | needAnother, run: movedStore},
	{name: "GuardedLoads", needs: needGuards | needBulk | needAnother, run: guardLoads},
	{name: "Columns", needs: needMover | needAnother, run: undamagedColumns},
	{name: "BulkReads", needs: needBulk | needAnother, run: bulkReads},
	{name: "LoadContent", needs: needBulk | needAnother, run: loadContent},
	{name: "LoadAllOrNothing", needs: needBulk | needAnother, run: loadAllOrNothing},
	{name: "LoadWatched", needs: needBulk | needAnother, run: loadWatched},
}}
