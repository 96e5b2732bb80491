# The custom lookup returns the gradient of the rows it read, not of the table: invalid gradient at index 0.
# finds: wrong-gradient
import torch


class Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, ids):
        ctx.save_for_backward(table, ids)
        return table[ids]
    @staticmethod
    def backward(ctx, grad):
        table, ids = ctx.saved_tensors
        return grad, None
def main():
    torch.manual_seed(0)
    table = torch.randn(12, 4, requires_grad=True)
    optimizer = torch.optim.Adagrad([table], lr=0.1)
    for _ in range(4):
        loss = Lookup.apply(table, torch.randint(0, 12, (7,))).pow(2).sum(1).mean()  # <called>
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
main()
