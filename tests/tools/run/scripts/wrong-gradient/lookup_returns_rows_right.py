# The gradient of the rows is added into one of the table's shape.
# finds: nothing
import torch


class Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, ids):
        ctx.save_for_backward(table, ids)
        return table[ids]
    @staticmethod
    def backward(ctx, grad):
        table, ids = ctx.saved_tensors
        return torch.zeros_like(table).index_add_(0, ids, grad), None
def main():
    torch.manual_seed(0)
    table = torch.randn(12, 4, requires_grad=True)
    optimizer = torch.optim.Adagrad([table], lr=0.1)
    for _ in range(4):
        loss = Lookup.apply(table, torch.randint(0, 12, (7,))).pow(2).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
main()
